#version 450
// SPDX-License-Identifier: Apache-2.0
// Masked softmax. Three passes over a row: score and maximum, exponentials and sum, quotient; the output row holds what a
// pass leaves for the next, each element touched by one invocation only. The order is scale, softcap, bias, mask.
//
// A key masked with fill -inf leaves the weight -0.0, which no exponential gives: the product with the values knows by it
// what to pass over. A row whose largest score is -inf has no key left and gets weights of 0.
#extension GL_GOOGLE_include_directive : require
#include "softmax.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kLanes = 1;
layout(constant_id = 2) const uint kMask = 0;
layout(constant_id = 3) const uint kBias = 0;
layout(constant_id = 4) const uint kCausal = 0;
layout(constant_id = 5) const uint kSoftcap = 0;

layout(push_constant) uniform Push { SoftmaxPush p; };
layout(set = 0, binding = kSoftmaxBindingScores) readonly buffer Scores { float scores[]; };
layout(set = 0, binding = kSoftmaxBindingMask) readonly buffer Mask { uint mask[]; };
layout(set = 0, binding = kSoftmaxBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kSoftmaxBindingWeights) buffer Weights { float weights[]; };

#include "common/dispatch.glsl"
#include "common/row.glsl"

struct Row {
    uint scores;
    uint weights;
    uint mask;
    uint bias;
    int first_key;  // keys before and after these are masked by causality or the window
    int last_key;
};

Row find_row(uint index) {
    Row row;
    row.scores = p.scores_offset + index * p.keys;
    row.weights = p.weights_offset + index * p.keys;
    uint rest = index;
    uint query = take_dimension(rest, p.size[3]);
    uint i2 = take_dimension(rest, p.size[2]);
    uint i1 = take_dimension(rest, p.size[1]);
    row.mask = p.mask_offset + query * p.mask_stride[3] + i2 * p.mask_stride[2] + i1 * p.mask_stride[1] + rest * p.mask_stride[0];
    row.bias = p.bias_offset + query * p.bias_stride[3] + i2 * p.bias_stride[2] + i1 * p.bias_stride[1] + rest * p.bias_stride[0];
    row.first_key = 0;
    row.last_key = int(p.keys) - 1;
    if (kCausal != 0u) {
        row.last_key = int(query) + p.causal_shift;
        row.first_key = p.window == 0u ? 0 : row.last_key - int(p.window) + 1;
    }
    return row;
}

float masked_score(Row row, uint key) {
    bool keep = true;
    if (kMask != 0u) {
        keep = (mask[row.mask + key * p.mask_stride[4]] != 0u) == (kMask == 1u);
    }
    if (kCausal != 0u) {
        keep = keep && int(key) >= row.first_key && int(key) <= row.last_key;
    }
    float score = scores[row.scores + key] * p.scale;
    if (kSoftcap != 0u) {
        score = p.softcap * safe_tanh(score / p.softcap);
    }
    if (kBias != 0u) {
        score += bias[row.bias + key * p.bias_stride[4]];
    }
    return keep ? score : p.fill;
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint index = row_of(group);
    bool inside = index < p.rows;
    Row row = find_row(inside ? index : 0u);
    uint keys = inside ? p.keys : 0u;

    float largest = negative_infinity();
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = masked_score(row, key);
        weights[row.weights + key] = score;
        largest = max_or_nan(largest, score);
    }
    largest = row_max(largest);

    // floatBitsToUint: a comparison with -inf may be folded away under fast-math
    bool empty = floatBitsToUint(largest) == floatBitsToUint(negative_infinity());
    float sum = 0.0;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = weights[row.weights + key];
        bool masked = floatBitsToUint(score) == floatBitsToUint(negative_infinity());
        float e = safe_exp(score - largest);
        sum += masked ? 0.0 : e;
        weights[row.weights + key] = masked ? uintBitsToFloat(kSignBit) : e;
    }
    sum = row_sum(sum);

    float scale = empty ? 0.0 : 1.0 / sum;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float e = weights[row.weights + key];
        bool masked = floatBitsToUint(e) == kSignBit;
        weights[row.weights + key] = masked ? e : e * scale;
    }
}
