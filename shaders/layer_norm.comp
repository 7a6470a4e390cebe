#version 450
// SPDX-License-Identifier: Apache-2.0
// y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row; RMSNorm leaves the mean in. Mean first, then the mean
// square of what is left: in one pass a row of mean 1000 and spread 1 would lose its spread. Each lane sums in four parts,
// which keeps the rounding error of long rows to that of rows a quarter as long.
#extension GL_GOOGLE_include_directive : require
#include "layer_norm.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kLanes = 1;
layout(constant_id = 2) const uint kCentred = 1;
layout(constant_id = 3) const uint kWeight = 1;
layout(constant_id = 4) const uint kBias = 1;

layout(push_constant) uniform Push { NormPush p; };
layout(set = 0, binding = kNormBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kNormBindingWeight) readonly buffer Weight { float weight[]; };
layout(set = 0, binding = kNormBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kNormBindingY) writeonly buffer Y { float y[]; };

#include "common/dispatch.glsl"
#include "common/row.glsl"

float row_mean(uint at, uint width) {
    vec4 sums = vec4(0.0);
    uint i = row_lane();
    for (; i + 3u * kLanes < width; i += 4u * kLanes) {
        sums += vec4(x[at + i], x[at + i + kLanes], x[at + i + 2u * kLanes], x[at + i + 3u * kLanes]);
    }
    for (; i < width; i += kLanes) {
        sums.x += x[at + i];
    }
    return row_sum((sums.x + sums.y) + (sums.z + sums.w)) / float(width);
}

float row_mean_square(uint at, uint width, float mean) {
    vec4 sums = vec4(0.0);
    uint i = row_lane();
    for (; i + 3u * kLanes < width; i += 4u * kLanes) {
        vec4 d = vec4(x[at + i], x[at + i + kLanes], x[at + i + 2u * kLanes], x[at + i + 3u * kLanes]) - mean;
        sums += d * d;
    }
    for (; i < width; i += kLanes) {
        float d = x[at + i] - mean;
        sums.x += d * d;
    }
    return row_sum((sums.x + sums.y) + (sums.z + sums.w)) / float(width);
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint row = row_of(group);
    uint width = row < p.rows ? p.width : 0u;
    uint at = p.x_offset + row * p.width;
    float mean = kCentred != 0u ? row_mean(at, width) : 0.0;
    float scale = 1.0 / sqrt(row_mean_square(at, width, mean) + p.eps);
    for (uint i = row_lane(); i < width; i += kLanes) {
        float v = (x[at + i] - mean) * scale;
        if (kWeight != 0u) {
            v *= weight[p.weight_offset + i * p.weight_stride];
        }
        if (kBias != 0u) {
            v += bias[p.bias_offset + i * p.bias_stride];
        }
        y[p.y_offset + row * p.width + i] = v;
    }
}
