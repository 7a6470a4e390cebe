// SPDX-License-Identifier: Apache-2.0
// Products of so few rows that their tiles leave most of a GPU idle: the sums are divided among
// more groups, each of a part of k, and a further dispatch adds the parts up (split-k).
#pragma once

#include "ops/matmul_choice.h"

namespace vkf {

/// Most parts of a sum, and fewest products in one.
inline constexpr shader::uint kMostSumParts = 8, kFewestPartProducts = 256;
/// Most rows of a product whose sums are divided.
inline constexpr shader::uint kMostSplitRows = 512;
/// Invocations of a group that adds up, an output each.
inline constexpr shader::uint kMergeLanes = 64;

/// A product whose sums may be divided; into how many parts a run does so depends on its rows.
struct SplitSums {
    static constexpr std::size_t kWords = 3;  ///< of a dispatch, in front of the tiles'

    explicit SplitSums(std::span<const shader::uint> words) noexcept
        : groups(words[0]), numbers(words[1]), k(words[2]), tiles(words.subspan(kWords)) {}

    std::uint64_t groups_of(std::uint64_t rows, shader::uint columns) const noexcept;
    /// The number of parts: of one length, a multiple of 4, and no more groups than were asked for.
    shader::uint parts(std::uint64_t rows, shader::uint columns) const noexcept;
    shader::uint parts_of(const View& c) const noexcept { return parts(c.rows(), c.dim(0)); }

    shader::uint groups;   ///< most work groups of the parts together
    shader::uint numbers;  ///< numbers along k in an element of b
    shader::uint k;        ///< products of a sum
    TileWords tiles;
};

enum class SplitWhen { never, by_rows, always };

/// Where a run may divide sums, puts the words of SplitSums before those of a product's tiles.
SplitWhen choose_split(Choice& whole, const Lowering& l, const ProductPart& part, const ReducedArithmetic& reduced,
                       const MatmulParams& params);

/// Emits the dispatches of a run that divides the sums. `whole` is what choose_split() made.
void lower_split(Lowering& l, const Product& product, const MatmulParams& params, const Choice& whole);

/// Prepares a product where its sums are not divided; else nothing is dispatched.
void prepare_whole_sums(const Operands& operands, Command& command) noexcept;
/// Prepares such a product where A has up to kMostUnpackedRows rows; else nothing is dispatched.
void prepare_unpacked_whole_sums(const Operands& operands, Command& command) noexcept;
/// Prepares the parts of the sums where they are. Operands: a, b, any, the parts; then C's sizes.
void prepare_part_sums(const Operands& operands, Command& command) noexcept;
/// Prepares what adds them up. Operands: the parts, twice, the bias or other operand, C, and the
/// other operand where it is beside the bias.
void prepare_merged_sums(const Operands& operands, Command& command) noexcept;

}  // namespace vkf
