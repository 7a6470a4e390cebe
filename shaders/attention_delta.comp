#version 450
// SPDX-License-Identifier: Apache-2.0
// A row an invocation: it is a small part of what attention's gradient computes.
#extension GL_GOOGLE_include_directive : require
#include "attention_delta.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kAttentionDeltaSpecStage) const uint kStage = 0;
layout(constant_id = kAttentionDeltaSpecLse) const uint kLse = 0;

layout(push_constant) uniform Push { AttentionDeltaPush p; };
layout(set = 0, binding = kAttentionDeltaBindingY) readonly buffer Y { float y[]; };
layout(set = 0, binding = kAttentionDeltaBindingDy) readonly buffer Dy { float dy[]; };
layout(set = 0, binding = kAttentionDeltaBindingLse) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = kAttentionDeltaBindingDelta) writeonly buffer Delta { float delta[]; };

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/numeric.glsl"

void main() {
    uint group = group_index();
    uint row = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || row >= p.rows) {
        return;
    }
    uint rest = row;
    uint query = take_dimension(rest, p.queries);
    uint head = take_dimension(rest, p.heads);
    if (kStage == 1u) {
        float sink = y[p.y_offset + rest * p.y_batch + head * p.y_head];
        uint parts = p.dy_offset + row * 2u;
        float weight = safe_exp(below_log_sum_exp(vec4(sink), vec4(dy[parts]), vec4(dy[parts + 1u])).x);
        delta[p.delta_offset + row] = -weight * lse[p.lse_offset + row];
        return;
    }
    uint at = p.y_offset + rest * p.y_batch + head * p.y_head + query * p.y_row;
    uint from = p.dy_offset + rest * p.dy_batch + head * p.dy_head + query * p.dy_row;
    float sum = 0.0;
    bool nothing = true;  // a row that sees no key is all zeros, whatever dy holds there
    for (uint i = 0u; i < p.width; ++i) {
        sum += y[at + i] * dy[from + i * p.dy_column];
        nothing = nothing && y[at + i] == 0.0;
    }
    sum = nothing ? 0.0 : sum;
    if (kLse != 0u) {
        sum -= lse[p.lse_offset + row];
    }
    delta[p.delta_offset + row] = sum;
}
