#version 450
// SPDX-License-Identifier: Apache-2.0
// (softmax(logits) - target) / rows counted, times what comes in: the target is 1 - e at the label
// and e / V everywhere (label smoothing e). An ignored row passes 0, a label outside the classes
// NaN.
#extension GL_GOOGLE_include_directive : require
#include "cross_entropy_gradient.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kCrossEntropyGradientSpecStage) const uint kStage = 1;
layout(constant_id = kCrossEntropyGradientSpecLanes) const uint kLanes = 1;

layout(push_constant) uniform Push { CrossEntropyGradientPush p; };
layout(set = 0, binding = kCrossEntropyGradientBindingLogits) readonly buffer Logits { float logits[]; };
layout(set = 0, binding = kCrossEntropyGradientBindingLabels) readonly buffer Labels { int labels[]; };
layout(set = 0, binding = kCrossEntropyGradientBindingRows) buffer Rows { float rows[]; };
layout(set = 0, binding = kCrossEntropyGradientBindingOut) buffer Out { float result[]; };

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/row.glsl"

void fill_rows() {
    float counted = 0.0;
    for (uint row = row_lane(); row < p.rows; row += kLanes) {
        counted += labels[p.labels_offset + row] == p.ignore_index ? 0.0 : 1.0;
        rows[p.rows_offset + 2u * row] = result[p.out_offset + 2u * row];
        rows[p.rows_offset + 2u * row + 1u] = result[p.out_offset + 2u * row + 1u];
    }
    counted = row_sum(counted);
    if (row_lane() == 0u) {
        rows[p.rows_offset + 2u * p.rows] = counted == 0.0 ? 0.0 : logits[p.logits_offset] / counted;
    }
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    if (kStage == 0u) {
        fill_rows();
        return;
    }
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= p.rows * p.width) {
        return;
    }
    uint row = index / p.width;
    uint column = index - row * p.width;
    int label = labels[p.labels_offset + row];
    uint parts = p.rows_offset + 2u * row;
    float logit = logits[p.logits_offset + index];
    float share = safe_exp(below_log_sum_exp(logit, rows[parts], rows[parts + 1u]));
    float target = p.smoothing / float(p.width) + (int(column) == label ? 1.0 - p.smoothing : 0.0);
    float d = (share - target) * rows[p.rows_offset + 2u * p.rows];
    bool known = label >= 0 && uint(label) < p.width;
    result[p.out_offset + index] = label == p.ignore_index ? 0.0 : (known ? d : quiet_nan());
}
