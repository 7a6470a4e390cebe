// SPDX-License-Identifier: Apache-2.0
// Which kernels fused attention is computed by, and how they are told of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/attention_params.h"
#include "ops/attention_tiles.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/inflate.h"
#include "runtime/compile/lowering.h"
#include "shaders/attention_shared.h"

namespace vkf {

/// attention_rows, which takes the place of attention_shared_full where there are few rows. It has
/// the same local size and tile of keys.
struct FewRows {
    const Shader* shader = nullptr;
    const PackedText* source = nullptr;   ///< as AttentionTiling::source
    std::vector<shader::uint> rows = {};  ///< one kernel each, fewest first; none: it is not taken
};

/// The kernel that a device takes, and how it walks over rows and keys.
struct AttentionTiling {
    const Shader* shader = nullptr;
    bool full = false;                      ///< the shader has all twelve buffers
    const PackedText* source = nullptr;     ///< the shader's GLSL text, for score mods
    std::vector<std::string> defines = {};  ///< macros this text is compiled with
    shader::uint local_size = 0;
    shader::uint tile = 0;                ///< keys, and columns of a block of O
    std::vector<shader::uint> rows = {};  ///< one kernel each, fewest first
    std::string why = {};
    shader::uint lanes = 0;  ///< lanes of attention_lanes; 0 in other kernels
    /// one tile for each of `rows`, in attention_coopmat only
    std::vector<AttentionTile> matrices = {};
    Arithmetic arithmetic = Arithmetic::f32;
    /// why it is computed in fp32 though f16 was asked for
    std::string why_fp32 = {};
    FewRows few = {};
};

/// Rounds of the loops of attention_lanes.comp for so many keys: tiles, head dimension and values.
/// The round in which a loop finds that it has ended counts too, as llvmpipe counts it. With four
/// lanes a softcap is a loop over four keys, for each row, and a tile then has four rows.
inline std::int64_t lanes_rounds(shader::uint lanes, std::int64_t keys, std::int64_t head_dim, bool softcap) {
    const auto tiles = divide_up(static_cast<std::uint64_t>(keys), 4 * lanes);
    const std::uint64_t fours = divide_up(static_cast<std::uint64_t>(head_dim), 4);
    const std::uint64_t capping = softcap && lanes == 4 ? 4 * (4 + 1) : 0;
    return static_cast<std::int64_t>(tiles * (1 + (fours + 1) + capping + (lanes + 1)));
}

/// The invocations of a group of attention_shared.comp, each with two rows.
inline constexpr shader::uint kAttentionSharedThreads =
    shader::kAttentionSharedTile / 2 * shader::kAttentionSharedLanes;

/// Counts the rounds of attention_shared.comp, no loop unrolled: with a mask, and the rare loop for
/// values that are not finite in every tile.
inline std::int64_t shared_rounds(shader::uint tile, shader::uint blocks, std::int64_t keys, std::int64_t head_dim) {
    const auto tiles = divide_up(static_cast<std::uint64_t>(keys), tile);
    const auto parts = divide_up(static_cast<std::uint64_t>(head_dim), tile);
    const auto loop = [](std::uint64_t times, std::uint64_t rounds_within = 0) {
        return times * (1 + rounds_within) + 1;
    };
    constexpr std::uint64_t lanes = shader::kAttentionSharedLanes;
    constexpr std::uint64_t rows = shader::kAttentionSharedTile * lanes / kAttentionSharedThreads;
    constexpr std::uint64_t loads = rows;  // of fours, of which a tile is as many as lanes
    const std::uint64_t scores = loop(parts, loop(loads) + loop(lanes)) + loop(rows);
    const std::uint64_t weights = loop(rows, loop(lanes) + loop(blocks));
    const std::uint64_t values = loop(blocks, loop(loads) + loop(lanes) + loop(rows * tile));
    return static_cast<std::int64_t>(tiles * (1 + loop(tile) + scores + weights + values));
}

// --- shared with the gradient --------------------------------------------------------------------

/// A processor takes longer to compile a fused kernel than it takes to compute up to so many
/// queries and keys without.
inline constexpr std::int64_t kWorthFusing = 128;

/// Blocks of columns, a tile wide each, that a group computes of results so wide: 1, 2 or 4.
inline shader::uint column_blocks(std::int64_t width, shader::uint tile) {
    const auto blocks = static_cast<shader::uint>(divide_up(static_cast<std::uint64_t>(width), tile));
    return blocks > 2 ? shader::kAttentionMaxBlocks : blocks;
}

namespace support {

/// Lanes that the kernels for processors can rely on; 0: none.
shader::uint exact_lanes(const Capabilities& device);

}  // namespace support

// --- at record time ------------------------------------------------------------------------------

/// Words of prepare_attention(): columns of O that a group takes, keys that a split takes at least,
/// and from kAttentionKernelRows on the rows of each kernel's tile.
enum AttentionWord : std::size_t { kAttentionSliceColumns, kAttentionSplitKeys, kAttentionKernelRows };

/// Operands: those of shaders/attention.h, of which plain kernels have the first four.
void prepare_attention(const Operands& operands, Command& command) noexcept;
/// Operands: those of shaders/attention_merge.h; then, for their sizes, the keys and the pages.
/// Word: the keys that a split takes at least.
void prepare_splits_merge(const Operands& operands, Command& command) noexcept;
/// Operands: those of shaders/attention_mask.h.
void prepare_mask_bits(const Operands& operands, Command& command) noexcept;

// --- few rows: attention_rows.comp ---------------------------------------------------------------

/// Says what keeps such attention from attention_rows; empty: nothing.
std::string no_attention_rows(const Lowering& l, const AttentionParams& params);
/// Chooses the rows that groups take where no_attention_rows() finds nothing.
FewRows choose_attention_rows(const AttentionParams& params);

// --- a program for f16: attention_coopmat.comp ---------------------------------------------------

bool coopmat_attention_is_forced(const Capabilities& device);
/// Says what keeps attention with heads so wide from cooperative matrices; empty: nothing. Throws
/// where VKFORMER_VARIANT asks for what cannot be.
std::string no_coopmat_attention(const Capabilities& device, std::int64_t head_dim, bool with_mod = false);
/// Chooses a tiling where no_coopmat_attention() finds nothing. With a score mod its own module
/// takes the place of the library's.
AttentionTiling choose_coopmat_attention(const Capabilities& device, const AttentionParams& params, bool full,
                                         std::int64_t value_dim);
/// The constants that a tile adds to those of the other kernels.
void add_matrix_constants(const AttentionTile& tile, Constants& constants);
/// Rounds of an invocation's loops for so many keys.
std::int64_t coopmat_rounds(const AttentionTile& tile, std::int64_t keys, std::int64_t head_dim);

}  // namespace vkf
