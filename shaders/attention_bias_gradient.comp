#version 450
// SPDX-License-Identifier: Apache-2.0
// A sum an invocation, its terms in the order of batches, heads, keys and queries: the same bits in
// every run.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "attention.h"
#include "attention_bias_gradient.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kBiasGradientSpecPresent) const uint kPresent = 0;

layout(set = 0, binding = kBiasGradientBindingDs) readonly buffer Ds { float ds[]; };
layout(set = 0, binding = kBiasGradientBindingOut) buffer Out { float result[]; };

layout(push_constant) uniform Push { AttentionBiasGradientPush p; };

#include "common/dispatch.glsl"

const bool kBatch = (kPresent & kAttentionPresentBatch) != 0u;
const bool kHead = (kPresent & kAttentionPresentHead) != 0u;
const bool kQuery = (kPresent & kAttentionPresentQuery) != 0u;

void main() {
    uint group = group_index();
    uint rest = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || rest >= p.count) {
        return;
    }
    uint query = kQuery ? take_dimension(rest, p.queries) : 0u;
    uint part = take_dimension(rest, p.parts);
    uint head = kHead ? take_dimension(rest, p.heads) : 0u;
    uint batch = rest;
    uint last_batch = kBatch ? batch + 1u : p.batches;
    uint last_head = kHead ? head + 1u : p.heads;
    uint last_query = kQuery ? query + 1u : p.queries;
    uint last_key = min((part + 1u) * p.part, p.keys);
    uint to = p.out_offset + batch * p.out_batch + head * p.out_head + query * p.out_query + part * p.out_part;
    float sum = 0.0;
    if (p.more != 0u) {
        sum = result[to];
    }
    [[dont_unroll]] for (uint b = batch; b < last_batch; ++b) {
        [[dont_unroll]] for (uint h = head; h < last_head; ++h) {
            uint at = p.ds_offset + b * p.ds_batch + h / p.group * p.ds_group + h % p.group * p.ds_head;
            [[dont_unroll]] for (uint k = part * p.part; k < last_key; ++k) {
                [[dont_unroll]] for (uint q = query; q < last_query; ++q) {
                    sum += ds[at + k * p.ds_key + q * p.ds_query];
                }
            }
        }
    }
    result[to] = sum;
}
