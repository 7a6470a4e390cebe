#version 450
// SPDX-License-Identifier: Apache-2.0
// An element of O an invocation.
#extension GL_GOOGLE_include_directive : require
#include "attention_merge.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMergeSpecLse) const uint kLse = 0;

layout(set = 0, binding = kMergeBindingPartial) readonly buffer Partial { float partial[]; };
layout(set = 0, binding = kMergeBindingOut) writeonly buffer Out { float result[]; };
layout(set = 0, binding = kMergeBindingLse) writeonly buffer Lse { float lse[]; };

layout(push_constant) uniform Push { AttentionMergePush p; };

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/numeric.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint rest = index;
    uint column = take_dimension(rest, p.width);
    uint first = rest * p.splits * (p.width + 2u);
    float largest = negative_infinity();
    for (uint i = 0u; i < p.splits; ++i) {
        largest = max_or_nan(largest, partial[first + i * (p.width + 2u) + p.width]);
    }
    float sum = 0.0;
    float total = 0.0;
    for (uint i = 0u; i < p.splits; ++i) {
        uint at = first + i * (p.width + 2u);
        float below = partial[at + p.width];
        // A split of which nothing is left, or in which all is -inf below, has no part, whatever it
        // holds.
        if (floatBitsToUint(below) != (kInfinityBits | kSignBit)) {
            float share = safe_exp(below - largest);
            sum += partial[at + column] * share;
            total += partial[at + p.width + 1u] * share;
        }
    }
    uint row = take_dimension(rest, p.queries * p.group);
    uint kv_head = take_dimension(rest, p.kv_heads);
    uint head = kv_head * p.group + row % p.group;
    uint query = row / p.group;
    result[p.o_offset + rest * p.o_batch + head * p.o_head + query * p.o_row + column] =
        floatBitsToUint(total) == 0u ? 0.0 : sum * (p.keep_scale / total);
    if (kLse != 0u && column == 0u) {
        bool none = floatBitsToUint(largest) == (kInfinityBits | kSignBit);
        bool beyond = floatBitsToUint(largest) == kInfinityBits;
        vec2 parts = none || beyond ? vec2(largest, 0.0)
                                    : (is_nan(total) ? vec2(total, 0.0) : log_sum_exp_parts(largest, log(total)));
        uint at = (rest * p.kv_heads * p.group + head) * p.queries + query;
        if (kLse == 2u) {
            lse[at * 2u] = parts.x;
            lse[at * 2u + 1u] = parts.y;
        } else {
            lse[at] = parts.x;
        }
    }
}
