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

#include "common/strip.glsl"

const uint kValueEights = kBlocks * kTile / 8u;
const uint kValuePitch = kValueEights + 1u;
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
// 1 + the first key of the last tile with a value that is not finite in f16
shared uint values_not_finite;
#ifdef ELEMENTS
shared uint poisoned;  // likewise, with a key whose page is outside the pool
#endif

// Weights, at most 1, are multiplied by 2^15 before they are rounded, so that f16 is fine enough
// for small ones: they lose 2^-11 of themselves, and 2^-29 of 1 if a device takes subnormal numbers
// for 0.
const float kWeightUnit = 32768.0;

#ifndef ELEMENTS
float maxima[kRowsEach];
float totals[kRowsEach];
vec4 weights[kRowsEach * kFoursEach];  // first scores
#endif

// A row of the strip, as a row of its kv head; those past the last are the last again.
uint attending_row(uint row) {
    return min(work.first_row + subgroup_row + row, work.last_row);
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
// masked. add_not_finite() brings them back where it is not.
uvec4 finite_values(uvec4 halves, uint first) {
    if (has_not_finite(halves)) {
        atomicMax(values_not_finite, first + 1u);
        halves = finite_halves(halves);
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
        stage[kValuesAt + row * kValuePitch + eight] = finite_values(halves, first);
    }
}

#endif
