#version 450
// SPDX-License-Identifier: Apache-2.0
// A row an invocation: it is a small part of what attention's gradient computes.
#extension GL_GOOGLE_include_directive : require
#include "attention_delta.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kAttentionDeltaSpecStage) const uint kStage = 0;
layout(constant_id = kAttentionDeltaSpecLse) const uint kLse = 0;
layout(constant_id = kAttentionDeltaSpecSinks) const uint kSinks = 0;
layout(constant_id = kAttentionDeltaSpecHalves) const uint kHalves = 0;

layout(push_constant) uniform Push { AttentionDeltaPush p; };
layout(set = 0, binding = kAttentionDeltaBindingY) readonly buffer Y { float y[]; };
layout(set = 0, binding = kAttentionDeltaBindingDy) readonly buffer Dy { float dy[]; };
layout(set = 0, binding = kAttentionDeltaBindingLse) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = kAttentionDeltaBindingParts) readonly buffer Parts { float parts[]; };
layout(set = 0, binding = kAttentionDeltaBindingSinks) readonly buffer Sinks { float sinks[]; };
layout(set = 0, binding = kAttentionDeltaBindingDelta) writeonly buffer Delta { float delta[]; };

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/numeric.glsl"
#include "common/sixteen.glsl"

const uint kNegativeInfinityBits = kInfinityBits | kSignBit;

void main() {
    uint group = group_index();
    uint row = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || row >= p.rows) {
        return;
    }
    uint rest = row;
    uint query = take_dimension(rest, p.queries);
    uint head = take_dimension(rest, p.heads);
    vec2 row_lse = vec2(parts[p.parts_offset + row * 2u], parts[p.parts_offset + row * 2u + 1u]);
    float sink = negative_infinity();
    if (kSinks != 0u) {
        sink = sinks[p.sinks_offset + rest * p.sinks_batch + head * p.sinks_head];
    }
    bool no_sink = floatBitsToUint(sink) == kNegativeInfinityBits;
    float sink_below = below_log_sum_exp(vec4(sink), vec4(row_lse.x), vec4(row_lse.y)).x;
    if (kStage == 1u) {
        float weight = no_sink ? 0.0 : safe_exp(sink_below);  // the log-sum-exp may be -inf too
        delta[p.delta_offset + row] = -weight * lse[p.lse_offset + row];
        return;
    }
    uint at = p.y_offset + rest * p.y_batch + head * p.y_head + query * p.y_row;
    uint from = p.dy_offset + rest * p.dy_batch + head * p.dy_head + query * p.dy_row;
    float sum = 0.0;
    bool zeros = true;
    for (uint i = 0u; i < p.width; ++i) {
        float of_y = dy[from + i * p.dy_column];
        if (kHalves != 0u) {
            of_y = uintBitsToFloat(widened(kPackedF16, half_of(floatBitsToUint(of_y))));
        }
        sum += y[at + i] * of_y;
        zeros = zeros && y[at + i] == 0.0;
    }
    // A row that sees no key passes nothing, whatever dy holds there. Its log-sum-exp is -inf, or
    // its sink, up to the error of log(1).
    bool sink_alone = !no_sink && sink_below > -1e-6;
    bool nothing = floatBitsToUint(row_lse.x) == kNegativeInfinityBits || (zeros && sink_alone);
    sum = nothing ? 0.0 : sum;
    if (kLse != 0u) {
        sum -= lse[p.lse_offset + row];
    }
    delta[p.delta_offset + row] = sum;
}
