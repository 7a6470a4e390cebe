// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_choice.h"
#include "ops/attention_gradient_tiles.h"
#include "ops/left_out.h"
#include "ops/matrices.h"
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
#include "attention_gradient_coopmat.spv.h"
#endif

namespace vkf {

namespace {

using namespace shader;
using namespace support;

#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
const Shader kCoopmat{"attention_gradient_coopmat", spirv::kAttentionGradientCoopmatSpirv};
#else
const Shader kCoopmat{"attention_gradient_coopmat", {}};
#endif

constexpr uint kSubgroupRows = 16;
/// Subgroups of a group: for few rows, and for more.
constexpr uint kFewSubgroups = 2, kSubgroups = 4;
/// Rows that take more bytes are staged part by part: as many groups should be under way at once.
constexpr uint kMostWholeBytes = 40960;

}  // namespace

std::optional<GradientMatrixTile> gradient_matrix_tile(const Capabilities& device, std::int64_t near_rows,
                                                       std::uint32_t columns, std::uint32_t widest) {
    const auto whole = static_cast<uint>(align_up(widest, kAttentionGradientTile));
    std::optional<GradientMatrixTile> best;
    for (const MatrixShape& shape : device.matrix_shapes) {
        if (multiplications(shape) <= (best ? multiplications(best->mat) : 0)) {
            continue;
        }
        GradientMatrixTile t{.mat = shape,
                             .subgroup_rows = device.cpu() ? shape.m : std::max(kSubgroupRows, shape.m),
                             .blocks = device.cpu() ? 1 : column_blocks(columns, kAttentionGradientTile),
                             .subgroup = device.matrix_subgroup_size};
        const auto take = [&](uint subgroups, uint part, bool at_once) {
            t.subgroups = subgroups;
            t.part = part;
            t.whole = at_once;
            return t.fits(device) && (!at_once || t.shared_bytes() <= kMostWholeBytes);
        };
        const bool many = !device.cpu() && near_rows > kFewSubgroups * t.subgroup_rows;
        if ((many && (take(kSubgroups, whole, true) || take(kSubgroups, 64, false) || take(kSubgroups, 32, false))) ||
            take(kFewSubgroups, whole, true) || take(kFewSubgroups, 64, false) || take(kFewSubgroups, 32, false)) {
            best = t;
        }
    }
    return best;
}

std::string no_coopmat_gradient(const Capabilities& device, const AttentionParams& params) {
    // what is computed again must be what was computed
    const std::string of_forward = no_coopmat_attention(device, params.head_dim);
    if (!of_forward.empty()) {
        return of_forward;
    }
    if (std::string left = left_out(device, kAttentionName, kCoopmat.name, "attention_coopmat"); !left.empty()) {
        return left;
    }
    if (!device.subgroup_arithmetic) {
        return "no cooperative matrices: the device has no arithmetic of subgroups";
    }
    const auto widest = static_cast<uint>(std::max(params.head_dim, params.value_dim));
    return gradient_matrix_tile(device, params.most_keys, widest, widest)
               ? ""
               : "no cooperative matrices: the device has none of a shape that fits";
}

const Shader& coopmat_gradient_shader() { return kCoopmat; }

void add_gradient_matrix_constants(const GradientMatrixTile& tile, Constants& constants) {
    constants.set_local_size(tile.invocations());
    constants.set(kAttentionGradientSpecRows, tile.rows());
    constants.set(kAttentionGradientSpecBlocks, tile.blocks);
    constants.set(kAttentionGradientSpecMatRows, tile.mat.m);
    constants.set(kAttentionGradientSpecMatColumns, tile.mat.n);
    constants.set(kAttentionGradientSpecMatDepth, tile.mat.k);
    constants.set(kAttentionGradientSpecSubgroupRows, tile.subgroup_rows);
    constants.set(kAttentionGradientSpecSubgroup, tile.subgroup);
    constants.set(kAttentionGradientSpecPart, tile.part);
    constants.set(kAttentionGradientSpecWhole, tile.whole ? 1 : 0);
}

}  // namespace vkf
