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

#include "common/strip.glsl"

const uint kStripMats = kTile / kMatDepth;  // of ds, and of weights
const uint kStripPitch = kStripFours + 1u;
const uint kStrip = kSubgroupRows * 2u * kWeightPitch;
const uint kWeightsAt = kSubgroupRows * kWeightPitch;  // within a strip, behind ds
const uint kNearSecondAt = kWhole * kRows * kPitch;
const uint kFarAt = kNearSecondAt + kRows * kPitch;
const uint kFarSecondAt = kFarAt + kWhole * kTile * kPitch;
const uint kStripsAt = kFarSecondAt + kTile * kPitch;

shared uvec4 stage[kStripsAt + kSubgroups * kStrip];
// 1 + the first row of the last tile in which that row was not finite in f16
shared uint not_finite_rows[kTile];

// Weights (before dropout makes them larger), hardly more than 1, are multiplied by 2^14 before
// they are rounded, so that f16 is fine enough for small ones. ds is multiplied by the power of two
// that brings the largest of a subgroup's, in this tile, to 2^14 or more.
const float kWeightUnit = 16384.0;
const uint kLargestExponent = 14u;

#define LeftMatrix coopmat<float16_t, gl_ScopeSubgroup, kMatRows, kMatDepth, gl_MatrixUseA>
#define RightMatrix coopmat<float16_t, gl_ScopeSubgroup, kMatDepth, kMatColumns, gl_MatrixUseB>

vec4 scores[kRowsEach * kFoursEach];  // then ds
vec4 dp[kRowsEach * kFoursEach];      // dy . v, then weights

void stage_near(bool second, uint part, uint to) {
    for (uint i = gl_LocalInvocationID.x; i < kRows * kPartEights; i += kThreads) {
        uint row = i / kPartEights;
        uint eight = i - row * kPartEights;
        uvec2 at = near_rows(min(work.first_near + row, work.last_near));
        uint column = part + eight * 8u;
        stage[to + row * kPitch + eight] =
            eight_halves(load_near(second, at, column), load_near(second, at, column + 4u));
    }
}

void stage_far(bool second, uint first, uint part, uint eights, uint to) {
    for (uint i = gl_LocalInvocationID.x; i < kTile * eights; i += kThreads) {
        uint row = i / eights;
        uint eight = i - row * eights;
        uvec2 at = far_rows(min(first + row, work.far_count - 1u));
        uint column = part + eight * 8u;
        uvec4 halves = eight_halves(load_far(second, at, column), load_far(second, at, column + 4u));
        if (has_not_finite(halves)) {
            atomicMax(not_finite_rows[row], first + 1u);
            halves = finite_halves(halves);
        }
        stage[to + row * kPitch + eight] = halves;
    }
}

#endif
