#version 450
// SPDX-License-Identifier: Apache-2.0
// torch.nn.utils.clip_grad_norm_: the norm of all gradients, and min(max_norm / (norm + 1e-6), 1).
#extension GL_GOOGLE_include_directive : require
#include "clip.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kClipSpecLanes) const uint kLanes = 64;
layout(constant_id = kClipSpecScaled) const uint kScaled = 0;

layout(push_constant) uniform Push { ClipPush p; };
layout(set = 0, binding = kClipBindingSquares) readonly buffer Squares { float squares[]; };
layout(set = 0, binding = kClipBindingNorm) writeonly buffer Norm { float norm[]; };
layout(set = 0, binding = kClipBindingScale) writeonly buffer Scale { float factor[]; };
layout(set = 0, binding = kClipBindingLossScale) readonly buffer LossScale { float loss_scale[]; };

#include "common/dispatch.glsl"
#include "common/row.glsl"

void main() {
    if (group_index() >= p.group_count) {
        return;
    }
    float sum = 0.0;
    for (uint i = row_lane(); i < p.count; i += kLanes) {
        sum += squares[p.squares_offset + i];
    }
    float by = kScaled != 0u ? loss_scale[p.loss_scale_offset] : 1.0;
    float root = sqrt(row_sum(sum)) / by;
    if (row_lane() == 0u) {
        norm[p.norm_offset] = root;
        factor[p.scale_offset] = is_finite(root) ? min(p.max_norm / (root + 1e-6), 1.0) / by : quiet_nan();
    }
}
