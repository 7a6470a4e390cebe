// SPDX-License-Identifier: Apache-2.0
// The code of a SPIR-V module where it lies: packed in the library, or as words in memory.
// For op authors: <vkformer/advanced/spirv_code.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../base/export.h"

namespace vkf {

/// SPIR-V as the library embeds it, a sixth of its size: a number for each word, in an order in
/// which like ones come together, as text that is deflated (RFC 1951). cmake/SpirvNumbers.cmake
/// writes it.
///
/// The parts of the text, one behind another:
/// 1. The five words of the header, and the first word of every instruction.
/// 2. The first operand of an instruction, whose second operand is taken for its result. But of an
///    instruction with a single operand, of OpStore, and of those from OpLoopMerge to
///    OpUnreachable, all operands, each as its distance from the result before: that result less
///    the operand.
/// 3. The result, less the result before.
/// 4. All further operands, each as the instruction's own result less the operand.
/// The result before the first one is 0. Distances 0, -1, 1, -2, 2, ... are the numbers 0, 1, 2, 3,
/// 4, ... A number is written in hexadecimal, but for its first digit in the letters g to v.
struct PackedSpirv {
    std::uint32_t words;
    std::uint32_t characters;  ///< of the text
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
