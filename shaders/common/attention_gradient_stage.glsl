// SPDX-License-Identifier: Apache-2.0
// attention_gradient_coopmat.comp's tile: constants, shared memory, which part of it an invocation
// has, and what is staged.
#ifndef VKF_SHADERS_COMMON_ATTENTION_GRADIENT_STAGE_GLSL
#define VKF_SHADERS_COMMON_ATTENTION_GRADIENT_STAGE_GLSL

#include "common/attention_gradient.glsl"

layout(constant_id = kAttentionGradientSpecMatRows) const uint kMatRows = 16;
layout(constant_id = kAttentionGradientSpecMatColumns) const uint kMatColumns = 16;
layout(constant_id = kAttentionGradientSpecMatDepth) const uint kMatDepth = 16;
layout(constant_id = kAttentionGradientSpecSubgroupRows) const uint kSubgroupRows = 16;
layout(constant_id = kAttentionGradientSpecSubgroup) const uint kSubgroup = 32;
layout(constant_id = kAttentionGradientSpecPart) const uint kPart = 64;
layout(constant_id = kAttentionGradientSpecWhole) const uint kWhole = 0;

const uint kTile = kAttentionGradientTile;
const uint kSubgroups = kRows / kSubgroupRows;
const uint kThreads = kSubgroups * kSubgroup;
const uint kMatsDown = kSubgroupRows / kMatRows;
const uint kMatsAcross = kTile / kMatColumns;  // a tile of far rows, and a block of the results
const uint kOutMats = kBlocks * kMatsAcross;
const uint kStripMats = kTile / kMatDepth;  // of ds, and of weights

// The sizes below count eights of f16; a strip's fp32 numbers are fours.
const uint kPartEights = kPart / 8u;
const uint kPitch = kPartEights + 1u;
const uint kStripFours = kTile / 4u;
const uint kStripPitch = kStripFours + 1u;
const uint kWeightPitch = kTile / 8u + 1u;
const uint kStrip = kSubgroupRows * 2u * kWeightPitch;
const uint kWeightsAt = kSubgroupRows * kWeightPitch;  // within a strip, behind ds
const uint kNearSecondAt = kWhole * kRows * kPitch;
const uint kFarAt = kNearSecondAt + kRows * kPitch;
const uint kFarSecondAt = kFarAt + kWhole * kTile * kPitch;
const uint kStripsAt = kFarSecondAt + kTile * kPitch;

shared uvec4 stage[kStripsAt + kSubgroups * kStrip];
// statistics_of() far rows, where these are queries
shared vec2 log_sum_exps[kTile];
shared float deltas[kTile];
shared uint mask_words[kMaskWords];
// 1 + the first row of the last tile in which that row was not finite in f16
shared uint wild_rows[kTile];

// A strip's rows are shared by kRowLanes neighbours each, which take every kRowLanes-th four of
// them: row_of(n), four_of(m).
const uint kRowLanes = kSubgroup >= 8u * kSubgroupRows   ? 8u
                       : kSubgroup >= 4u * kSubgroupRows ? 4u
                       : kSubgroup >= 2u * kSubgroupRows ? 2u
                                                         : 1u;
const uint kRowsEach = (kSubgroupRows * kRowLanes + kSubgroup - 1u) / kSubgroup;
const uint kFoursEach = kStripFours / kRowLanes;

// Weights (before dropout makes them larger), hardly more than 1, are multiplied by 2^14 before
// they are rounded, so that f16 is fine enough for small ones. ds is multiplied by the power of two
// that brings the largest of a subgroup's, in this tile, to 2^14 or more.
const float kWeightUnit = 16384.0;
const uint kLargestExponent = 14u;

#define Accumulator coopmat<float, gl_ScopeSubgroup, kMatRows, kMatColumns, gl_MatrixUseAccumulator>
#define LeftMatrix coopmat<float16_t, gl_ScopeSubgroup, kMatRows, kMatDepth, gl_MatrixUseA>
#define RightMatrix coopmat<float16_t, gl_ScopeSubgroup, kMatDepth, kMatColumns, gl_MatrixUseB>

uint subgroup_row;  // the subgroup's first row, within the group's
uint strip;
vec4 scores[kRowsEach * kFoursEach];   // then ds
vec4 incomes[kRowsEach * kFoursEach];  // dy . v, then weights

uint row_of(uint n) {
    return strip_lane_row(gl_SubgroupInvocationID, kSubgroup, kRowLanes, n);
}

uint four_of(uint m) {
    return strip_lane_four(gl_SubgroupInvocationID, kRowLanes, m);
}

uvec2 four_halves(vec4 x) {
    return uvec2(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)));
}

void stage_near(bool second, uint part, uint to) {
    for (uint i = gl_LocalInvocationID.x; i < kRows * kPartEights; i += kThreads) {
        uint row = i / kPartEights;
        uint eight = i - row * kPartEights;
        uvec2 at = near_rows(min(work.first_near + row, work.last_near));
        uint column = part + eight * 8u;
        stage[to + row * kPitch + eight] =
            uvec4(four_halves(load_near(second, at, column)), four_halves(load_near(second, at, column + 4u)));
    }
}

void stage_far(bool second, uint first, uint part, uint eights, uint to) {
    for (uint i = gl_LocalInvocationID.x; i < kTile * eights; i += kThreads) {
        uint row = i / eights;
        uint eight = i - row * eights;
        uvec2 at = far_rows(min(first + row, work.far_count - 1u));
        uint column = part + eight * 8u;
        uvec4 halves =
            uvec4(four_halves(load_far(second, at, column)), four_halves(load_far(second, at, column + 4u)));
        bvec4 low = equal(halves & 0x7c00u, uvec4(0x7c00u));
        bvec4 high = equal(halves & 0x7c000000u, uvec4(0x7c000000u));
        if (any(low) || any(high)) {
            atomicMax(wild_rows[row], first + 1u);
            halves &= ~(mix(uvec4(0u), uvec4(0xffffu), low) | mix(uvec4(0u), uvec4(0xffff0000u), high));
        }
        stage[to + row * kPitch + eight] = halves;
    }
}

// Puts what is known of a tile's pairs into shared memory; false where a mask leaves none of them.
// Every invocation finds the same.
bool stage_tile(uint first) {
    if (kMask == 0u && kOfQueries) {
        return true;
    }
    barrier();
    for (uint i = gl_LocalInvocationID.x; kMask != 0u && i < kMaskWords; i += kThreads) {
        mask_words[i] = mask_word(i, first);
    }
    for (uint i = gl_LocalInvocationID.x; !kOfQueries && i < kTile; i += kThreads) {
        vec3 statistics = statistics_of(min(first + i, work.far_count - 1u));
        log_sum_exps[i] = statistics.xy;
        deltas[i] = statistics.z;
    }
    barrier();
    if (kMask == 0u || kFiniteFill) {
        return true;
    }
    uint seen = 0u;
    for (uint i = 0u; i < kMaskWords; ++i) {
        seen |= mask_words[i];
    }
    return seen != 0u;
}

#endif
