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
layout(constant_id = 6) const uint kOutput = kSoftmaxWeights;

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
    int position;   // the key at which the query stands
    int first_key;  // causal: keys before this one and after `position` are masked
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
    row.position = int(query) + p.causal_shift;
    row.first_key = p.window == 0u ? 0 : row.position - int(p.window) + 1;
    return row;
}

float biased_score(Row row, uint key) {
    float score = scores[row.scores + key] * p.scale;
    if (kSoftcap != 0u) {
        score = p.softcap * safe_tanh(score / p.softcap);
    }
    if (kBias == kSoftmaxBias) {
        score += bias[row.bias + key * p.bias_stride[4]];
    } else if (kBias == kSoftmaxAlibi) {
        score -= bias[row.bias] * float(abs(row.position - int(key)));
    }
    return score;
}

float masked_score(Row row, uint key) {
    bool keep = true;
    if (kMask != 0u) {
        keep = (mask[row.mask + key * p.mask_stride[4]] != 0u) == (kMask == 1u);
    }
    if (kCausal != 0u) {
        keep = keep && int(key) >= row.first_key && int(key) <= row.position;
    }
    float score = biased_score(row, key);
    return keep ? score : p.fill;
}

bool is_masked(float score) {  // by its bits: a comparison with -inf may be folded away
    return floatBitsToUint(score) == floatBitsToUint(negative_infinity());
}

void write_weights(Row row, uint keys) {
    float largest = kBias == kSoftmaxSinks ? bias[row.bias] : negative_infinity();
    float sink = largest;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = masked_score(row, key);
        weights[row.weights + key] = score;
        largest = max_or_nan(largest, score);
    }
    largest = row_max(largest);

    float sum = 0.0;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = weights[row.weights + key];
        bool masked = is_masked(score);
        float e = safe_exp(score - largest);
        sum += masked ? 0.0 : e;
        weights[row.weights + key] = masked ? uintBitsToFloat(kSignBit) : e;
    }
    sum = row_sum(sum);
    if (kBias == kSoftmaxSinks) {
        sum += safe_exp(sink - largest);
    }

    float scale = is_masked(largest) ? 0.0 : 1.0 / sum;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float e = weights[row.weights + key];
        bool masked = floatBitsToUint(e) == kSignBit;
        weights[row.weights + key] = masked ? e : e * scale;
    }
}

void write_log_sum_exp(Row row, uint keys, uint index) {
    float largest = kBias == kSoftmaxSinks ? bias[row.bias] : negative_infinity();
    float sink = largest;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        largest = max_or_nan(largest, masked_score(row, key));
    }
    largest = row_max(largest);
    float sum = 0.0;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = masked_score(row, key);
        sum += is_masked(score) ? 0.0 : safe_exp(score - largest);
    }
    sum = row_sum(sum);
    if (kBias == kSoftmaxSinks) {
        sum += safe_exp(sink - largest);
    }
    if (row_lane() == 0u && index < p.rows) {
        weights[p.weights_offset + index] = is_finite(largest) ? largest + log(sum) : largest;
    }
}

void write_hard(Row row, uint keys) {
    float largest = negative_infinity();
    for (uint key = row_lane(); key < keys; key += kLanes) {
        largest = max_or_nan(largest, masked_score(row, key));
    }
    largest = row_max(largest);
    float first = negative_infinity();  // minus the lowest key that has it; exact below 2^24 keys
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = masked_score(row, key);
        bool found = is_nan(largest) ? is_nan(score) : score == largest;
        first = found && !is_masked(score) ? max(first, -float(key)) : first;
    }
    first = row_max(first);
    for (uint key = row_lane(); key < keys; key += kLanes) {
        bool masked = is_masked(masked_score(row, key));
        weights[row.weights + key] = masked ? uintBitsToFloat(kSignBit) : (-float(key) == first ? 1.0 : 0.0);
    }
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
    if (kOutput == kSoftmaxScores) {
        for (uint key = row_lane(); key < keys; key += kLanes) {
            weights[row.weights + key] = biased_score(row, key);
        }
    } else if (kOutput == kSoftmaxLogSumExp) {
        write_log_sum_exp(row, keys, index);
    } else if (kOutput == kSoftmaxHard) {
        write_hard(row, keys);
    } else {
        write_weights(row, keys);
    }
}
