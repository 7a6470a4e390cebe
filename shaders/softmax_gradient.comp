#version 450
// SPDX-License-Identifier: Apache-2.0
// ds = w (dw - sum w dw) of a softmax, times the derivative of what made its scores. A weight that
// is -0.0 is masked: its score passes no gradient whatever came in there, and what is written is
// -0.0 again, so that products skip what the key holds.
#extension GL_GOOGLE_include_directive : require
#include "softmax_gradient.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kSoftmaxGradientSpecLanes) const uint kLanes = 1;
layout(constant_id = kSoftmaxGradientSpecOf) const uint kOf = kSoftmaxGradientWeights;
layout(constant_id = kSoftmaxGradientSpecSoftcap) const uint kSoftcap = 0;
layout(constant_id = kSoftmaxGradientSpecFours) const uint kFours = 0;

layout(push_constant) uniform Push { SoftmaxGradientPush p; };
layout(set = 0, binding = kSoftmaxGradientBindingWeights) readonly buffer Weights { float weights[]; };
layout(set = 0, binding = kSoftmaxGradientBindingWeights) readonly buffer WeightsFours { vec4 weights_fours[]; };
layout(set = 0, binding = kSoftmaxGradientBindingDy) readonly buffer Dy { float dy[]; };
layout(set = 0, binding = kSoftmaxGradientBindingDy) readonly buffer DyFours { vec4 dy_fours[]; };
layout(set = 0, binding = kSoftmaxGradientBindingScores) readonly buffer Scores { float scores[]; };
layout(set = 0, binding = kSoftmaxGradientBindingScores) readonly buffer ScoresFours { vec4 scores_fours[]; };
layout(set = 0, binding = kSoftmaxGradientBindingOut) writeonly buffer Out { float result[]; };
layout(set = 0, binding = kSoftmaxGradientBindingOut) writeonly buffer OutFours { vec4 result_fours[]; };

#include "common/dispatch.glsl"
#include "common/row.glsl"

bvec4 is_masked(vec4 w) {
    return equal(floatBitsToUint(w), uvec4(kSignBit));
}

vec4 absent() {
    return vec4(uintBitsToFloat(kSignBit));
}

// Four elements of a row; of a row's end that is shorter, those beyond it are masked.
vec4 load_four(uint which, uint offset, uint four) {
    if (kFours != 0u) {
        uint at = offset / 4u + four;
        return which == 0u ? weights_fours[at] : (which == 1u ? dy_fours[at] : scores_fours[at]);
    }
    vec4 v = absent();
    for (uint i = 0u; i < 4u; ++i) {
        uint at = offset + four * 4u + i;
        if (four * 4u + i < p.width) {
            v[i] = which == 0u ? weights[at] : (which == 1u ? dy[at] : scores[at]);
        }
    }
    return v;
}

void store_four(uint offset, uint four, vec4 v) {
    if (kFours != 0u) {
        result_fours[offset / 4u + four] = v;
        return;
    }
    for (uint i = 0u; i < 4u; ++i) {
        if (four * 4u + i < p.width) {
            result[offset + four * 4u + i] = v[i];
        }
    }
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint row = row_of(group);
    bool inside = row < p.rows;
    uint fours = inside ? tiles_over(p.width, 4u) : 0u;
    uint start = row * p.width;
    float mean = 0.0;
    if (kOf == kSoftmaxGradientWeights || kOf == kSoftmaxGradientSink) {
        vec4 sums = vec4(0.0);
        for (uint i = row_lane(); i < fours; i += kLanes) {
            vec4 w = load_four(0u, p.weights_offset + start, i);
            vec4 d = load_four(1u, p.dy_offset + start, i);
            sums += mix(w * d, vec4(0.0), is_masked(w));
        }
        mean = row_sum((sums.x + sums.y) + (sums.z + sums.w));
    }
    if (kOf == kSoftmaxGradientSink) {
        if (inside && row_lane() == 0u) {
            result[p.out_offset + row] = -scores[p.scores_offset + row] * mean;
        }
        return;
    }
    float factor = kOf == kSoftmaxGradientLogSumExp && inside ? dy[p.dy_offset + row] : 0.0;
    for (uint i = row_lane(); i < fours; i += kLanes) {
        vec4 d = kOf == kSoftmaxGradientLogSumExp ? vec4(factor) : load_four(1u, p.dy_offset + start, i);
        bvec4 masked;
        vec4 ds = d;
        if (kOf == kSoftmaxGradientScores) {
            masked = is_masked(d);
        } else {
            vec4 w = load_four(0u, p.weights_offset + start, i);
            masked = is_masked(w);
            ds = w * (d - mean);
        }
        if (kSoftcap != 0u) {
            vec4 t = load_four(2u, p.scores_offset + start, i) * p.scale / p.softcap;
            t = vec4(safe_tanh(t.x), safe_tanh(t.y), safe_tanh(t.z), safe_tanh(t.w));
            ds *= 1.0 - t * t;
        }
        store_four(p.out_offset + start, i, mix(ds * p.scale, absent(), masked));
    }
}
