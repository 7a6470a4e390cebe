// SPDX-License-Identifier: Apache-2.0
// Parameters of cross_entropy_gradient.comp: the gradient of the mean cross-entropy at the logits.
#ifndef VKF_SHADERS_CROSS_ENTROPY_GRADIENT_H
#define VKF_SHADERS_CROSS_ENTROPY_GRADIENT_H

#include "common/types.h"

// in the first stage: what comes in, one number
VKF_CONSTANT(kCrossEntropyGradientBindingLogits, 0)
VKF_CONSTANT(kCrossEntropyGradientBindingLabels, 1)
// the log-sum-exp of each row in two parts, and behind them the factor of all that are not ignored
VKF_CONSTANT(kCrossEntropyGradientBindingRows, 2)
// the gradient; in the first stage what the log-sum-exp is copied from
VKF_CONSTANT(kCrossEntropyGradientBindingOut, 3)

// 0: one group fills in Rows; 1: the gradient
VKF_CONSTANT(kCrossEntropyGradientSpecStage, 1)
VKF_CONSTANT(kCrossEntropyGradientSpecLanes, 2)  // the local size of the first stage

VKF_PUSH_BEGIN(CrossEntropyGradientPush)
    uint rows;
    uint width;
    uint logits_offset;
    uint labels_offset;
    uint rows_offset;
    uint out_offset;
    int ignore_index;
    float smoothing;
VKF_PUSH_END(CrossEntropyGradientPush)

#endif
