// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul_choice.h"
#include "ops/matmul_tiles.h"
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
#include "matmul_coopmat.spv.h"
#endif

namespace vkf {

namespace {

using namespace shader;
using namespace support;

#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
const Shader kCoopmat{"matmul_coopmat", spirv::kMatmulCoopmatSpirv};
constexpr bool kHasCoopmat = true;
#else
const Shader kCoopmat{"matmul_coopmat", {}};
constexpr bool kHasCoopmat = false;
#endif

/// Matrices of a subgroup, down and across, and how many subgroups of a work group lie below and beside each other.
struct CoopmatPlan {
    uint most_rows, mats_down, mats_across, down, across;
};
/// For few rows, some, many: tiles of 32x128, 64x64 and 128x128 where matrices are 16x16.
constexpr CoopmatPlan kCoopmatPlans[] = {{32, 2, 2, 1, 4}, {512, 2, 2, 2, 2}, {kAnyRows, 4, 2, 2, 4}};
/// For processors, and devices too small for those.
constexpr CoopmatPlan kSmallCoopmatPlan{kAnyRows, 2, 1, 1, 2};

void add_coopmat(Choice& choice, const CoopmatTile& t, const std::vector<uint>& form, uint most_rows) {
    std::vector<uint> c{t.invocations(), t.subgroup_rows};
    c.insert(c.end(), form.begin(), form.end());
    c.resize(kMatmulSpecSubgroup + 1, 0);
    c[kMatmulSpecTileRows] = t.rows;
    c[kMatmulSpecTileColumns] = t.columns;
    c[kMatmulSpecTileDepth] = t.depth;
    c[kMatmulSpecMatRows] = t.mat.m;
    c[kMatmulSpecMatColumns] = t.mat.n;
    c[kMatmulSpecMatDepth] = t.mat.k;
    c[kMatmulSpecSubgroupRows] = t.subgroup_rows;
    c[kMatmulSpecSubgroupColumns] = t.subgroup_columns;
    c[kMatmulSpecSubgroup] = t.subgroup;
    choice.add(kCoopmat, std::move(c), most_rows, t.rows, t.columns, "f16 arithmetic, tiles of " + t.str());
    choice.kernels.back().subgroup_size = t.subgroup;
}

void add_coopmat(Choice& choice, const Capabilities& device, const CoopmatPlan& plan, const std::vector<uint>& form) {
    if (const auto tile = coopmat_tile(device, plan.mats_down, plan.mats_across, plan.down, plan.across)) {
        add_coopmat(choice, *tile, form, plan.most_rows);
    }
}

bool some_tile_fits(const Capabilities& device) {
    const CoopmatPlan& least = kSmallCoopmatPlan;
    return coopmat_tile(device, least.mats_down, least.mats_across, least.down, least.across).has_value();
}

}  // namespace

bool coopmat_is_forced(const Capabilities& device) { return device.asks_for(kCoopmat.name); }

void choose_coopmat(Choice& choice, const Capabilities& device, const std::vector<uint>& form, std::int64_t most_rows) {
    const std::size_t before = choice.kernels.size();
    for (const CoopmatPlan& plan : kCoopmatPlans) {
        if (device.cpu()) {
            break;
        }
        add_coopmat(choice, device, plan, form);
        if (most_rows <= plan.most_rows) {
            break;
        }
    }
    if (choice.kernels.size() == before) {
        add_coopmat(choice, device, kSmallCoopmatPlan, form);
    }
    choice.words[choice.words.size() - 3] = kAnyRows;  // the last serves what is left
}

std::string no_coopmat(const Capabilities& device, const MatmulParams& params) {
    const bool forced = coopmat_is_forced(device);
    const std::string lacking = !kHasCoopmat ? "this build has none, for want of a shader compiler that knows them"
                                : !device.cooperative_matrix ? "the device has none, or was not told of them"
                                : !some_tile_fits(device)    ? "the device has none of a shape that fits"
                                                             : "";
    if (forced && !lacking.empty()) {
        fail(kMatmulName, "VKFORMER_VARIANT asks for matmul_coopmat, which needs cooperative matrices: " + lacking);
    }
    return !lacking.empty()          ? "no cooperative matrices: " + lacking
           : params.masked_weights   ? "masked weights are multiplied in fp32"
           : device.cpu() && !forced ? "on a processor cooperative matrices are the slower way"
                                     : "";
}

}  // namespace vkf
