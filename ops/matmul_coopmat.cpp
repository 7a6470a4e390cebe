// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul_choice.h"
#include "ops/matmul_tiles.h"
#include "ops/matrices.h"
#include "ops/variants.h"
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
#include "matmul_coopmat.spv.h"
#include "matmul_coopmat_int8.spv.h"
#endif
#ifdef VKFORMER_GL_NV_COOPERATIVE_MATRIX2
#include "matmul_coopmat_elements.spv.h"
#include "matmul_coopmat_int8_elements.spv.h"
#endif

namespace vkf {

namespace {

using namespace shader;
using namespace support;

#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
const Shader kCoopmat{"matmul_coopmat", spirv::kMatmulCoopmatSpirv};
const Shader kCodesCoopmat{"matmul_coopmat_int8", spirv::kMatmulCoopmatInt8Spirv};
#else
const Shader kCoopmat{"matmul_coopmat", {}};
const Shader kCodesCoopmat{"matmul_coopmat_int8", {}};
#endif

// These compute the same products, and VKFORMER_VARIANT calls them by those names. Where these are
// left out, the ones above stand in.
#ifdef VKFORMER_GL_NV_COOPERATIVE_MATRIX2
const Shader kElements{"matmul_coopmat_elements", spirv::kMatmulCoopmatElementsSpirv};
const Shader kCodesElements{"matmul_coopmat_int8_elements", spirv::kMatmulCoopmatInt8ElementsSpirv};
#else
const Shader& kElements = kCoopmat;
const Shader& kCodesElements = kCodesCoopmat;
#endif

/// Matrices of a subgroup, down and across, and how many subgroups of a work group lie below and
/// beside each other.
struct CoopmatPlan {
    uint most_rows, mats_down, mats_across, down, across;
};
/// Plans for few rows, some, many: tiles of 32x128, 64x64 and 128x128 where matrices are 16x16.
constexpr CoopmatPlan kCoopmatPlans[] = {{32, 2, 2, 1, 4}, {512, 2, 2, 2, 2}, {kAnyRows, 4, 2, 2, 4}};
/// The plan for processors, and for devices too small for the plans above.
constexpr CoopmatPlan kSmallCoopmatPlan{kAnyRows, 2, 1, 1, 2};

void add_coopmat(Choice& choice, const CoopmatTile& t, const Constants& form, uint most_rows, bool elements) {
    Constants c = with_rows(form, t.invocations(), t.subgroup_rows);
    c.set(kMatmulSpecTileRows, t.rows);
    c.set(kMatmulSpecTileColumns, t.columns);
    c.set(kMatmulSpecTileDepth, t.depth);
    c.set(kMatmulSpecMatRows, t.mat.m);
    c.set(kMatmulSpecMatColumns, t.mat.n);
    c.set(kMatmulSpecMatDepth, t.mat.k);
    c.set(kMatmulSpecSubgroupRows, t.subgroup_rows);
    c.set(kMatmulSpecSubgroupColumns, t.subgroup_columns);
    c.set(kMatmulSpecSubgroup, t.subgroup);
    c.set(kMatmulSpecStages, t.stages);
    const Shader& shader = elements ? (t.codes ? kCodesElements : kElements) : (t.codes ? kCodesCoopmat : kCoopmat);
    choice.add(shader, std::move(c), most_rows, t.rows, t.columns,
               (t.codes ? "cooperative matrices: tiles of " : "tiles of ") + t.str() +
                   (elements ? ", sums finished element by element" : ""),
               t.codes ? Arithmetic::int8 : Arithmetic::f16);
    choice.kernels.back().subgroup_size = t.subgroup;
}

std::optional<CoopmatTile> tile_of(const Capabilities& device, const CoopmatPlan& plan, bool codes, bool deep = false) {
    return coopmat_tile(device, plan.mats_down, plan.mats_across, plan.down, plan.across, codes, deep);
}

std::string lacking(const Capabilities& device, const Shader& shader, bool offered, bool codes, bool elements) {
    const char* const taken = elements ? (codes ? kCodesElements : kElements).name : shader.name;
    return lacking_matrices(device, kMatmulName, shader.name, taken, offered,
                            offered && tile_of(device, kSmallCoopmatPlan, codes).has_value(), codes ? " of int8" : "");
}

}  // namespace

bool by_elements(const Capabilities& device, bool codes, bool in_parts) {
    return device.matrix_elements && !in_parts && !device.leaves_out((codes ? kCodesElements : kElements).name);
}

bool coopmat_is_forced(const Capabilities& device) { return asks_for(device, kCoopmat.name); }

void choose_coopmat(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t most_rows,
                    const ReducedArithmetic& reduced) {
    const std::size_t before = choice.kernels.size();
    const bool rounded = form.values()[kMatmulSpecALoad] == kMatmulAHalves;
    const auto add = [&](const CoopmatPlan& plan) {
        if (const auto tile = tile_of(device, plan, reduced.codes, rounded)) {
            add_coopmat(choice, *tile, form, plan.most_rows, reduced.elements);
        }
    };
    for (const CoopmatPlan& plan : kCoopmatPlans) {
        if (device.cpu()) {
            break;
        }
        if (rounded && plan.most_rows <= kMostUnpackedRows) {
            continue;
        }
        add(plan);
        if (most_rows <= plan.most_rows) {
            break;
        }
    }
    if (choice.kernels.size() == before && rounded) {
        add(kCoopmatPlans[1]);  // for any number of rows, where larger tiles do not fit
    }
    if (choice.kernels.size() == before) {
        add(kSmallCoopmatPlan);
    }
    choice.tiles.back().most_rows = kAnyRows;  // the last serves what is left
}

std::string no_coopmat(const Capabilities& device, const MatmulParams& params, bool elements) {
    const std::string what = lacking(device, kCoopmat, device.cooperative_matrix, false, elements);
    const bool forced = coopmat_is_forced(device);
    return !what.empty()                       ? what
           : params.masked_weights             ? "masked weights are multiplied in fp32"
           : half_is_forced(device) && !forced ? "VKFORMER_VARIANT asks for another kernel"
           : device.cpu() && !forced           ? kMatricesSlowOnProcessors
                                               : "";
}

std::string no_codes_coopmat(const Capabilities& device, bool elements) {
    const std::string what = lacking(device, kCodesCoopmat, device.cooperative_matrix_int8, true, elements);
    const bool forced = asks_for(device, kCodesCoopmat.name);
    return !what.empty()                      ? what
           : dot_is_forced(device) && !forced ? "VKFORMER_VARIANT asks for another kernel"
           : device.cpu() && !forced          ? kMatricesSlowOnProcessors
                                              : "";
}

}  // namespace vkf
