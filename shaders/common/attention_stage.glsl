// SPDX-License-Identifier: Apache-2.0
// The tile of attention on cooperative matrices: constants, shared memory, which part of it an
// invocation has, and what is staged. With ELEMENTS (attention_coopmat_elements.comp) queries stay
// in matrices, and what was their place in shared memory is that of keys, values and strips.
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
const uint kWeightPitch = kTile / 8u + 1u;
#ifdef ELEMENTS
const uint kStripPitch = kWeightPitch;
const uint kKeysAt = 0u;
#else
const uint kStripPitch = kStripFours + 1u;
const uint kKeysAt = kRows * kPitch;
#endif
const uint kValuesAt = kKeysAt + kTile * kPitch;
const uint kStripsAt = kValuesAt + kTile * kValuePitch;
const uint kStrip = kSubgroupRows * kStripPitch;
const uint kStripsEnd = kStripsAt + kSubgroups * kStrip;

#ifdef ELEMENTS
// Queries are staged by as many subgroups' rows as find room, or by one's.
const uint kQueryRows = kStripsEnd / kPitch > kRows ? kRows
                        : kStripsEnd / kPitch < kSubgroupRows
                            ? kSubgroupRows
                            : kStripsEnd / kPitch / kSubgroupRows * kSubgroupRows;
shared uvec4 stage[kStripsEnd > kQueryRows * kPitch ? kStripsEnd : kQueryRows * kPitch];
#else
const uint kQueryRows = kRows;
shared uvec4 stage[kStripsEnd];
shared float factors[kRows];  // the factor by which a row of O is scaled
#endif
shared uint mask_words[kRows];
shared uint wild;  // 1 + the first key of the last tile with a value that is not finite in f16
#ifdef ELEMENTS
shared uint poisoned;  // likewise, with a key whose page is outside the pool
#endif

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
#ifndef ELEMENTS
float maxima[kRowsEach];
float totals[kRowsEach];
vec4 weights[kRowsEach * kFoursEach];  // first scores
#endif

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

// True where a row of the subgroup may see a key of the tile. All of its invocations find the same.
bool takes_part(uint first) {
    uint from = work.first_row + subgroup_row;
    bool part = from <= work.last_row;
    if (kCausal != 0u && !kFiniteFill) {
        int last = int(query_of(attending_row(kSubgroupRows - 1u))) + work.shift;
        part = part && last >= int(first);
        if (p.window != 0u) {
            part = part && int(query_of(from)) + work.shift - int(p.window) < int(first + kTile) - 1;
        }
    }
    return part;
}

vec4 query_four(uint offset, uint column) {
    return column < p.head_dim ? load_query(offset, column) : vec4(0.0);
}

vec4 key_four(uint offset, uint column) {
    return column < p.head_dim ? load_key(offset, column) : vec4(0.0);
}

// Stages kQueryRows rows of the group's, from one on.
void stage_queries(uint part, uint from) {
    for (uint i = gl_LocalInvocationID.x; i < kQueryRows * kPartEights; i += kThreads) {
        uint row = i / kPartEights;
        uint eight = i - row * kPartEights;
        uint offset = query_offset(min(work.first_row + from + row, work.last_row));
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

// Eight numbers of V. Those that are not finite become 0: 0 * inf must not enter where a key is
// masked. add_wild() brings them back where it is not.
uvec4 tamed(uvec4 halves, uint first) {
    // an exponent of ones, and one more, reaches the bit above
    uvec4 above = (halves & 0x7c007c00u) + 0x04000400u;
    if (((above.x | above.y | above.z | above.w) & 0x80008000u) != 0u) {
        atomicMax(wild, first + 1u);
        bvec4 low = equal(halves & 0x7c00u, uvec4(0x7c00u));
        bvec4 high = equal(halves & 0x7c000000u, uvec4(0x7c000000u));
        halves &= ~(mix(uvec4(0u), uvec4(0xffffu), low) | mix(uvec4(0u), uvec4(0xffff0000u), high));
    }
    return halves;
}

void stage_values(uint first) {
    for (uint i = gl_LocalInvocationID.x; i < kTile * kValueEights; i += kThreads) {
        uint row = i / kValueEights;
        uint eight = i - row * kValueEights;
        uint offset = key_offsets(first + row).y;
        uint column = (work.slice * kValueEights + eight) * 8u;
        uvec4 halves = eight_halves(load_value(offset, column), load_value(offset, column + 4u));
        stage[kValuesAt + row * kValuePitch + eight] = tamed(halves, first);
    }
}

#endif
