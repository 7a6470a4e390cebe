// SPDX-License-Identifier: Apache-2.0
// Parameters of clip.comp: from sums of squares to a norm, and the factor that clips it.
#ifndef VKF_SHADERS_CLIP_H
#define VKF_SHADERS_CLIP_H

#include "common/types.h"

VKF_CONSTANT(kClipBindingSquares, 0)
VKF_CONSTANT(kClipBindingNorm, 1)
VKF_CONSTANT(kClipBindingScale, 2)
VKF_CONSTANT(kClipBindingLossScale, 3)

VKF_CONSTANT(kClipSpecLanes, 1)  // the local size
VKF_CONSTANT(kClipSpecScaled, 2) // 1: the loss was multiplied by LossScale

VKF_PUSH_BEGIN(ClipPush)
    uint count;
    uint squares_offset;
    uint norm_offset;
    uint scale_offset;
    uint loss_scale_offset;
    float max_norm;
VKF_PUSH_END(ClipPush)

#endif
