// SPDX-License-Identifier: Apache-2.0
// attention_coopmat.comp's tile: constants, shared memory, which part of it an invocation has, and
// what is staged.
#ifndef VKF_SHADERS_COMMON_ATTENTION_STAGE_GLSL
#define VKF_SHADERS_COMMON_ATTENTION_STAGE_GLSL

#include "common/attention.glsl"

layout(constant_id = kAttentionSpecMatRows) const uint kMatRows = 16;
layout(constant_id = kAttentionSpecMatColumns) const uint kMatColumns = 16;
layout(constant_id = kAttentionSpecMatDepth) const uint kMatDepth = 16;
layout(constant_id = kAttentionSpecSubgroupRows) const uint kSubgroupRows = 16;
layout(constant_id = kAttentionSpecSubgroup) const uint kSubgroup = 32;
layout(constant_id = kAttentionSpecPart) const uint kPart = 64;

const uint kTile = kAttentionMatrixTile;
const uint kStripFours = kTile / 4u;
const uint kSubgroups = kRows / kSubgroupRows;
const uint kThreads = kSubgroups * kSubgroup;
const uint kMatsDown = kSubgroupRows / kMatRows;
const uint kMatsAcross = kTile / kMatColumns;  // a tile of keys, and a block of O
const uint kOutMats = kBlocks * kMatsAcross;

// The sizes below count eights of f16; a strip's scores and sums are fours of fp32.
const uint kPartEights = kPart / 8u;
const uint kPitch = kPartEights + 1u;
const uint kValueEights = kBlocks * kTile / 8u;
const uint kValuePitch = kValueEights + 1u;
const uint kStripPitch = kStripFours + 1u;
const uint kWeightPitch = kTile / 8u + 1u;
const uint kKeysAt = kRows * kPitch;
const uint kValuesAt = kKeysAt + kTile * kPitch;
const uint kStripsAt = kValuesAt + kTile * kValuePitch;
const uint kStrip = kSubgroupRows * kStripPitch;

shared uvec4 stage[kStripsAt + kSubgroups * kStrip];
shared float factors[kRows];  // the factor by which a row of O is scaled
shared uint mask_words[kRows];
shared uint wild;  // 1 + the first key of the last tile with a value that is not finite in f16

// A strip's rows are shared by kRowLanes neighbours each, which take every kRowLanes-th four of
// them: row_of(n), four_of(m).
const uint kRowLanes = kSubgroup >= 8u * kSubgroupRows   ? 8u
                       : kSubgroup >= 4u * kSubgroupRows ? 4u
                       : kSubgroup >= 2u * kSubgroupRows ? 2u
                                                         : 1u;
const uint kRowsEach = (kSubgroupRows * kRowLanes + kSubgroup - 1u) / kSubgroup;
const uint kFoursEach = kStripFours / kRowLanes;

// Weights, at most 1, are multiplied by 2^15 before they are rounded, so that f16 is fine enough
// for small ones: they lose 2^-11 of themselves, and 2^-29 of 1 if a device takes subnormal numbers
// for 0.
const float kWeightUnit = 32768.0;

uint subgroup_row;  // the subgroup's first row, within the group's
uint strip;
float maxima[kRowsEach];
float totals[kRowsEach];
vec4 weights[kRowsEach * kFoursEach];  // first scores

#define Accumulator coopmat<float, gl_ScopeSubgroup, kMatRows, kMatColumns, gl_MatrixUseAccumulator>

uint row_of(uint n) {
    return strip_lane_row(gl_SubgroupInvocationID, kSubgroup, kRowLanes, n);
}

uint four_of(uint m) {
    return strip_lane_four(gl_SubgroupInvocationID, kRowLanes, m);
}

// A row of the strip, as a row of its kv head; those past the last are the last again.
uint attending_row(uint row) {
    return min(work.first_row + subgroup_row + row, work.last_row);
}

uvec2 four_halves(vec4 x) {
    return uvec2(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)));
}

uvec4 eight_halves(vec4 a, vec4 b) {
    return uvec4(four_halves(a), four_halves(b));
}

vec4 query_four(uint offset, uint column) {
    return column < p.head_dim ? load_query(offset, column) : vec4(0.0);
}

vec4 key_four(uint offset, uint column) {
    return column < p.head_dim ? load_key(offset, column) : vec4(0.0);
}

void stage_queries(uint part) {
    for (uint i = gl_LocalInvocationID.x; i < kRows * kPartEights; i += kThreads) {
        uint row = i / kPartEights;
        uint eight = i - row * kPartEights;
        uint offset = query_offset(min(work.first_row + row, work.last_row));
        uint column = part + eight * 8u;
        stage[row * kPitch + eight] = eight_halves(query_four(offset, column), query_four(offset, column + 4u));
    }
}

void stage_keys(uint first, uint part) {
    for (uint i = gl_LocalInvocationID.x; i < kTile * kPartEights; i += kThreads) {
        uint row = i / kPartEights;
        uint eight = i - row * kPartEights;
        uint offset = key_offsets(first + row).x;
        uint column = part + eight * 8u;
        stage[kKeysAt + row * kPitch + eight] = eight_halves(key_four(offset, column), key_four(offset, column + 4u));
    }
}

// Stages V. Numbers that are not finite become 0: 0 * inf must not enter where a key is masked.
// add_wild() brings them back where it is not.
void stage_values(uint first) {
    for (uint i = gl_LocalInvocationID.x; i < kTile * kValueEights; i += kThreads) {
        uint row = i / kValueEights;
        uint eight = i - row * kValueEights;
        uint offset = key_offsets(first + row).y;
        uint column = (work.slice * kValueEights + eight) * 8u;
        uvec4 halves = eight_halves(load_value(offset, column), load_value(offset, column + 4u));
        bvec4 low = equal(halves & 0x7c00u, uvec4(0x7c00u));
        bvec4 high = equal(halves & 0x7c000000u, uvec4(0x7c000000u));
        if (any(low) || any(high)) {
            atomicMax(wild, first + 1u);
            halves &= ~(mix(uvec4(0u), uvec4(0xffffu), low) | mix(uvec4(0u), uvec4(0xffff0000u), high));
        }
        stage[kValuesAt + row * kValuePitch + eight] = halves;
    }
}

#endif
