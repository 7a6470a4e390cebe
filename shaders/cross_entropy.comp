#version 450
// SPDX-License-Identifier: Apache-2.0
// One group sums all rows in a fixed order, so that the same input gives the same bits: row r is
// lane r mod kLanes' work. With label smoothing e the target is (1-e) at the label plus e/V
// everywhere (torch.nn.functional.cross_entropy): what is everywhere is in the second part of the
// log-sum-exp already.
#extension GL_GOOGLE_include_directive : require
#include "cross_entropy.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kCrossEntropySpecLanes) const uint kLanes = 64;

layout(push_constant) uniform Push { CrossEntropyPush p; };
layout(set = 0, binding = kCrossEntropyBindingLogits) readonly buffer Logits { float logits[]; };
layout(set = 0, binding = kCrossEntropyBindingLabels) readonly buffer Labels { int labels[]; };
layout(set = 0, binding = kCrossEntropyBindingLogSumExp) readonly buffer LogSumExp { float log_sum_exp[]; };
layout(set = 0, binding = kCrossEntropyBindingLoss) writeonly buffer Loss { float loss[]; };

#include "common/dispatch.glsl"
#include "common/row.glsl"
#include "common/run_sum.glsl"

void main() {
    if (group_index() >= p.group_count) {
        return;
    }
    RunSum losses = RunSum(0.0, 0.0);
    uint count = 0u;
    for (uint row = row_lane(); row < p.rows; row += kLanes) {
        int label = labels[p.labels_offset + row];
        if (label == p.ignore_index) {
            continue;
        }
        uint at = p.logits_offset + row * p.width;
        uint parts = p.log_sum_exp_offset + 2u * row;
        bool known = label >= 0 && uint(label) < p.width;
        precise float below = log_sum_exp[parts] - logits[at + uint(known ? label : 0)];
        add(losses, count, known ? (1.0 - p.smoothing) * below + log_sum_exp[parts + 1u] : quiet_nan());
        ++count;
    }
    float sum = row_sum(losses.runs + losses.run);
    float counted = row_sum(float(count));
    if (row_lane() == 0u) {
        loss[p.loss_offset] = counted == 0.0 ? quiet_nan() : sum / counted;
    }
}
