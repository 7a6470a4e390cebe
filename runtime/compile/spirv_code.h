// SPDX-License-Identifier: Apache-2.0
// The code of a SPIR-V module where it lies: packed in the library, or as words in memory.
// For op authors: <vkformer/advanced/spirv_code.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../base/export.h"

namespace vkf {

/// SPIR-V as the library embeds it, a quarter of its size: of each word, the lowest byte first, two
/// hexadecimal digits a byte; the first digits of all words, then the second ones, to the eighth;
/// and these deflated (RFC 1951). cmake/CompileShader.cmake writes it.
struct PackedSpirv {
    std::uint32_t words;
    std::span<const std::uint8_t> bytes;
};

/// Refers to a module's words or to packed ones, and owns neither.
class VKF_API SpirvCode {
public:
    constexpr SpirvCode() = default;
    constexpr SpirvCode(const PackedSpirv& packed) : packed_(packed) {}
    constexpr SpirvCode(std::span<const std::uint32_t> words) : plain_(words) {}
    SpirvCode(const std::vector<std::uint32_t>& words) : plain_(words) {}

    /// The module's words, unpacked. Throws Error where packed ones are damaged.
    std::vector<std::uint32_t> words() const;

private:
    std::span<const std::uint32_t> plain_;
    PackedSpirv packed_{};
};

}  // namespace vkf
