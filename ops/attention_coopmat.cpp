// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_choice.h"
#include "ops/matrices.h"
#include "ops/variants.h"
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
#include "attention_coopmat.glsl.h"
#include "attention_coopmat.spv.h"
#include "attention_coopmat_full.spv.h"
#endif
#ifdef VKFORMER_GL_NV_COOPERATIVE_MATRIX2
#include "attention_coopmat_elements.spv.h"
#include "attention_coopmat_elements_full.spv.h"
#endif

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kVariant = "attention_coopmat";

#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
constexpr const PackedText* kSource = &glsl::kAttentionCoopmatGlsl;
const Shader kCoopmat{kVariant, spirv::kAttentionCoopmatSpirv};
const Shader kCoopmatFull{"attention_coopmat_full", spirv::kAttentionCoopmatFullSpirv};
#else
constexpr const PackedText* kSource = nullptr;
const Shader kCoopmat{kVariant, {}};
const Shader kCoopmatFull{"attention_coopmat_full", {}};
#endif
// These compute the same, and VKFORMER_VARIANT calls them by those names. Where these are left out,
// the ones above stand in.
#ifdef VKFORMER_GL_NV_COOPERATIVE_MATRIX2
const Shader kElements{"attention_coopmat_elements", spirv::kAttentionCoopmatElementsSpirv};
const Shader kElementsFull{"attention_coopmat_elements_full", spirv::kAttentionCoopmatElementsFullSpirv};
#else
const Shader& kElements = kCoopmat;
const Shader& kElementsFull = kCoopmatFull;
#endif
/// Subgroups of a group, by rows. Where weights go through shared memory, an H200 takes two thirds
/// to three quarters of the time for many rows with 8 that it takes with 4; where they do not, as
/// much or less.
constexpr uint kFewSubgroups = 2, kSubgroups[] = {kFewSubgroups, 4, 8};

/// Blocks of O. A processor takes one, which compiles sooner.
uint blocks_of(const Capabilities& device, std::int64_t value_dim) {
    return device.cpu() ? 1 : column_blocks(value_dim, kAttentionMatrixTile);
}

/// Whether weights stay in matrices, for heads so wide. A score mod's own module is made of
/// attention_coopmat.comp, which does without.
bool by_elements(const Capabilities& device, std::int64_t head_dim, bool with_mod) {
    return device.matrix_elements && !with_mod && !device.leaves_out(kElements.name) &&
           !device.leaves_out(kElementsFull.name) &&
           attention_tile(device, kFewSubgroups, 1, static_cast<uint>(head_dim), true).has_value();
}

}  // namespace

bool coopmat_attention_is_forced(const Capabilities& device) { return asks_for(device, kVariant); }

std::string no_coopmat_attention(const Capabilities& device, std::int64_t head_dim, bool with_mod) {
    const bool elements = by_elements(device, head_dim, with_mod);
    const bool forced = coopmat_attention_is_forced(device);
    const bool fits =
        device.cooperative_matrix && attention_tile(device, kFewSubgroups, 1, static_cast<uint>(head_dim)).has_value();
    const std::string lacking = lacking_matrices(device, kAttentionName, kVariant, elements ? kElements.name : kVariant,
                                                 device.cooperative_matrix, fits);
    const std::string full = left_out(device, kAttentionName, (elements ? kElementsFull : kCoopmatFull).name, kVariant);
    return !lacking.empty()                       ? lacking
           : !full.empty()                        ? full
           : asks_for(device, "attention_shared") ? "VKFORMER_VARIANT asks for attention_shared"
           : asks_for(device, "attention_lanes")  ? "VKFORMER_VARIANT asks for attention_lanes"
           : device.cpu() && !forced              ? kMatricesSlowOnProcessors
                                                  : "";
}

AttentionTiling choose_coopmat_attention(const Capabilities& device, const AttentionParams& params, bool full,
                                         std::int64_t value_dim) {
    const auto head_dim = static_cast<uint>(params.head_dim);
    const bool elements = by_elements(device, params.head_dim, params.score_mod ? true : false);
    uint blocks = blocks_of(device, value_dim);
    while (blocks > 1 && !attention_tile(device, kFewSubgroups, blocks, head_dim, elements)) {
        blocks /= 2;
    }
    AttentionTiling t;
    for (const uint subgroups : kSubgroups) {
        const auto tile = attention_tile(device, subgroups, blocks, head_dim, elements);
        const bool enough = !t.rows.empty() && (device.cpu() || params.most_queries * params.group <= t.rows.back());
        // behind the end of a packed sequence the rest of a tile is idle
        const bool too_many = params.cumulative_queries >= 0 && subgroups > kSubgroups[1];
        if (!tile || enough || too_many) {
            break;
        }
        t.matrices.push_back(*tile);
        t.rows.push_back(tile->rows());
    }
    t.shader = elements ? (full ? &kElementsFull : &kElements) : full ? &kCoopmatFull : &kCoopmat;
    t.full = full;
    t.source = kSource;
    if (full) {
        t.defines.push_back("FULL");
    }
    t.tile = kAttentionMatrixTile;
    t.why = matrices_of(t.matrices.front().mat) + (elements ? ", weights stay in them" : "");
    t.arithmetic = Arithmetic::f16;
    return t;
}

void add_matrix_constants(const AttentionTile& tile, Constants& constants) {
    constants.set_local_size(tile.invocations());
    constants.set(kAttentionSpecMatRows, tile.mat.m);
    constants.set(kAttentionSpecMatColumns, tile.mat.n);
    constants.set(kAttentionSpecMatDepth, tile.mat.k);
    constants.set(kAttentionSpecSubgroupRows, tile.subgroup_rows);
    constants.set(kAttentionSpecSubgroup, tile.subgroup);
    constants.set(kAttentionSpecPart, tile.part);
}

std::int64_t coopmat_rounds(const AttentionTile& tile, std::int64_t keys, std::int64_t head_dim) {
    const std::int64_t invocations = tile.invocations(), parts = divide_up(head_dim, tile.part);
    const std::int64_t query_eights = parts * tile.rows() * tile.part / 8;
    const std::int64_t staged = query_eights + kAttentionMatrixTile * (parts * tile.part + tile.blocks * 32) / 8;
    const std::int64_t rounds = divide_up(staged, invocations) + parts * tile.part / tile.mat.k + tile.rows() + 1 +
                                // the rounds of add_wild(), where values are not finite
                                kAttentionMatrixTile * tile.blocks;
    return divide_up(keys, kAttentionMatrixTile) * rounds;
}

}  // namespace vkf
