// SPDX-License-Identifier: Apache-2.0
// The code of a SPIR-V module where it lies: packed in the library, or as words in memory.
// For op authors: <vkformer/advanced/spirv_code.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../base/export.h"

namespace vkf {

/// SPIR-V as the library embeds it, an eighth of its size: a number for each word, in an order in
/// which like ones come together, as text that is deflated (RFC 1951). cmake/SpirvNumbers.cmake
/// writes it.
///
/// First come the five words of the header and the first word of every instruction. Then come all
/// operands: those of one op behind those of a lower one, and of one op all the first, all the
/// second, all the third, then the others. The first is the type, as it is; the second is the
/// result, less the result before (0 before the first). Any other is its distance from the last
/// result: that result less the operand. These differ:
/// - Ops below OpConstantTrue, OpDecorate and OpMemberDecorate have no result. All their operands
///   are as they are, and so are all but the result of others up to OpMemberDecorate, except
///   OpFunctionCall, OpLoad and OpStore.
/// - OpStore, and those from OpLoopMerge to OpUnreachable, have no type and no result either. Their
///   operands are distances, but for the second of OpSelectionMerge, which is as it is.
///
/// Distances 0, -1, 1, -2, 2, ... are the numbers 0, 1, 2, 3, 4, ... A number is written in
/// hexadecimal, but for its first digit in the letters g to v.
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
