// SPDX-License-Identifier: Apache-2.0
// How the gradient of fused attention is lowered for GPUs: tiles in shared memory, or on
// cooperative matrices.
#include <algorithm>
#include <bit>

#include "attention_gradient_shared.spv.h"
#include "ops/attention_choice.h"
#include "ops/attention_gradient.h"
#include "ops/attention_gradient_parts.h"
#include "ops/attention_gradient_tiles.h"
#include "ops/dropout.h"
#include "ops/fours.h"
#include "ops/lanes.h"
#include "ops/left_out.h"
#include "ops/matrices.h"
#include "ops/pushed_mask.h"
#include "ops/variants.h"
#include "shaders/attention.h"
#include "shaders/attention_gradient_tiles.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShared{"attention_gradient_shared", spirv::kAttentionGradientSharedSpirv};

/// Near rows of a group: few, or many.
constexpr uint kFewRows = 32, kManyRows = 64;
/// Up to so many blocks of results, of both kinds together, there are registers for many rows. By
/// the compilers of an RX 7900 and an RTX 3060; and of an M1 and a Snapdragon 8, which would spill.
constexpr uint kMostSums = 4, kMostSumsElsewhere = 2;

/// The kernel of one side, and the part of the results that a group computes.
struct GradientTile {
    uint rows = 0, blocks = 0;  ///< near rows, and blocks of kAttentionGradientTile columns
    std::optional<GradientMatrixTile> matrices = {};
    std::string why_fp32 = {};
};

GradientTile tile_of(const Lowering& l, const AttentionParams& p, uint side) {
    const bool of_queries = side == kAttentionGradientOfQueries;
    const std::int64_t near = of_queries ? p.most_queries * p.group : p.most_keys;
    const auto widest = static_cast<uint>(std::max(p.head_dim, p.value_dim));
    const uint columns = of_queries ? static_cast<uint>(p.head_dim) : widest;
    std::string why_fp32;
    if (l.arithmetic() == Arithmetic::f16) {
        why_fp32 = no_coopmat_gradient(l.device(), p);
        if (gradient_on_matrices(l, p)) {
            const GradientMatrixTile t = gradient_matrix_tile(l.device(), near, columns, widest).value();
            return {t.rows(), t.blocks, t, {}};
        }
    }
    const uint blocks = column_blocks(columns, kAttentionGradientTile);
    const bool discrete = l.device().type == DeviceType::discrete;
    const bool many = near > kFewRows && blocks * (of_queries ? 1 : 2) <= (discrete ? kMostSums : kMostSumsElsewhere);
    return {many ? kManyRows : kFewRows, blocks, {}, why_fp32};
}

/// Counts the rounds of attention_gradient_shared.comp, no loop unrolled, with a mask. On
/// cooperative matrices there are fewer.
std::int64_t rounds_of(const AttentionParams& p) {
    const auto most = static_cast<std::uint64_t>(std::max(p.most_keys, p.most_queries * p.group));
    const auto parts = [](std::int64_t width) {
        return divide_up(static_cast<std::uint64_t>(width), kAttentionGradientTile);
    };
    const std::uint64_t each = kManyRows / 16, lanes = kAttentionGradientTile / 4;
    const std::uint64_t known = 2 * 2 + kManyRows + 1;  // of a tile's mask and statistics
    const std::uint64_t stage = each + 1 + 3, products = lanes * (1 + each + 1) + 1;
    const std::uint64_t multiplied = (parts(p.head_dim) + parts(p.value_dim)) * (1 + stage + products) + 2;
    const std::uint64_t added = 2 * (kAttentionGradientMaxBlocks * (1 + 3 + products) + 1);
    return static_cast<std::int64_t>(divide_up(most, kAttentionGradientTile) *
                                     (1 + known + multiplied + 4 * (each + 1) + added));
}

void lower_side(Lowering& l, const GradientOperands& x, uint side, ValueId first, ValueId second) {
    const AttentionParams& a = l.params<AttentionGradientParams>().attention;
    const auto read_by_fours = [&](ValueId id) { return in_fours(l.info(id)); };
    const bool fours = read_by_fours(x.query) && read_by_fours(x.key) && read_by_fours(x.value) &&
                       read_by_fours(x.dy) && read_by_fours(first) && read_by_fours(second);
    const GradientTile tile = tile_of(l, a, side);
    Constants constants(kAttentionGradientThreads,
                        {{kAttentionGradientSpecSide, side},
                         {kAttentionGradientSpecBlocks, tile.blocks},
                         {kAttentionGradientSpecFours, fours ? 1u : 0u},
                         {kAttentionGradientSpecCausal, causal_constant(a.causal)},
                         {kAttentionGradientSpecFill, std::bit_cast<uint>(a.fill)},
                         {kAttentionGradientSpecGroup, a.group},
                         {kAttentionGradientSpecThreshold, dropout_threshold(a.dropout)},
                         {kAttentionGradientSpecKeepScale, std::bit_cast<uint>(dropout_scale(a.dropout))},
                         {kAttentionGradientSpecMask, a.mask_present},
                         {kAttentionGradientSpecBias, a.bias_present},
                         {kAttentionGradientSpecSlopes, a.slopes_present},
                         {kAttentionGradientSpecScale, std::bit_cast<uint>(a.scale)},
                         {kAttentionGradientSpecSoftcap, std::bit_cast<uint>(a.softcap)},
                         {kAttentionGradientSpecHeads, static_cast<uint>(l.info(x.key).shape[1].constant())},
                         {kAttentionGradientSpecWindow, window_constant(a.window)},
                         {kAttentionGradientSpecRows, tile.rows}});
    if (tile.matrices) {
        add_gradient_matrix_constants(*tile.matrices, constants);
    }
    Kernel kernel{tile.matrices ? &coopmat_gradient_shader() : &kShared, std::move(constants),
                  std::string(side == kAttentionGradientOfQueries ? "of queries" : "of keys and values") + ", " +
                      (tile.matrices ? matrices_of(tile.matrices->mat) : "tiles in shared memory") + ": " +
                      std::to_string(tile.rows) + " rows by " + std::to_string(kAttentionGradientTile) +
                      (fours ? ", by fours" : "")};
    kernel.loops = tile.matrices ? Loops::as_written : loops_on(l.device());
    kernel.why_fp32 = tile.why_fp32;
    if (tile.matrices) {
        kernel.arithmetic = Arithmetic::f16;
        kernel.subgroup_size = tile.matrices->subgroup;
    }
    l.dispatch({std::move(kernel)},
               {{x.query, Access::read},
                {x.key, Access::read},
                {x.value, Access::read},
                {x.dy, Access::read},
                {x.lse, Access::read},
                {x.delta, Access::read},
                {x.mask, Access::read},
                {x.bias, Access::read},
                {x.slopes, Access::read},
                {first, Access::write},
                {second, Access::write}},
               prepare_gradient, {side, tile.blocks * kAttentionGradientTile, tile.rows, 0, 0});
}

}  // namespace

bool support::takes_shared_gradient(const Capabilities& device) {
    return !device.cpu() || asks_for(device, "attention_shared") ||
           (device.cooperative_matrix && coopmat_attention_is_forced(device));
}

bool support::gradient_on_matrices(const Lowering& l, const AttentionParams& params) {
    return l.arithmetic() == Arithmetic::f16 && takes_shared_gradient(l.device()) &&
           no_coopmat_gradient(l.device(), params).empty();
}

std::string support::declined_shared_gradient(const Capabilities& device, const AttentionGradientParams& params) {
    constexpr uint kBuffers = kAttentionGradientBindingSecond + 1;
    const AttentionParams& p = params.attention;
    if (std::string left = left_out(device, kAttentionName, kShared.name, "attention_shared"); !left.empty()) {
        return left;
    }
    if (is_wanted(params, p.bias)) {
        return "its bias has a gradient";
    }
    if (p.key_numbers >= 0) {
        return "sequences have lengths of their own";
    }
    if (device.storage_buffers < kBuffers) {
        return "the device has " + std::to_string(device.storage_buffers) + " storage buffers a stage, not " +
               std::to_string(kBuffers);
    }
    if (device.cpu() && rounds_of(p) > kMostRounds) {
        return "so many rows would take more rounds of a loop than a processor's driver may allow";
    }
    return {};
}

void support::lower_shared_gradient(Lowering& l, const GradientOperands& x) {
    if (x.of_queries) {
        // the second output is not written
        lower_side(l, x, kAttentionGradientOfQueries, *x.of_queries, *x.of_queries);
    }
    if (x.of_keys || x.of_values) {
        lower_side(l, x, kAttentionGradientOfKeys, x.of_keys ? *x.of_keys : l.scratch(DType::f32, l.info(x.key).shape),
                   x.of_values ? *x.of_values : l.scratch(DType::f32, l.info(x.value).shape));
    }
}

}  // namespace vkf
