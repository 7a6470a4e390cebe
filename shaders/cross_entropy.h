// SPDX-License-Identifier: Apache-2.0
// Parameters of cross_entropy.comp: mean of -log softmax(logits)[label] over dense rows. The
// log-sum-exp of each is in two parts, of which the second has what label smoothing adds.
#ifndef VKF_SHADERS_CROSS_ENTROPY_H
#define VKF_SHADERS_CROSS_ENTROPY_H

#include "common/types.h"

VKF_CONSTANT(kCrossEntropyBindingLogits, 0)
VKF_CONSTANT(kCrossEntropyBindingLabels, 1)
VKF_CONSTANT(kCrossEntropyBindingLogSumExp, 2)
VKF_CONSTANT(kCrossEntropyBindingLoss, 3)

VKF_CONSTANT(kCrossEntropySpecLanes, 1)  // the local size

VKF_PUSH_BEGIN(CrossEntropyPush)
    uint rows;
    uint width;
    uint logits_offset;
    uint labels_offset;
    uint log_sum_exp_offset;
    uint loss_offset;
    int ignore_index;
    float smoothing;
VKF_PUSH_END(CrossEntropyPush)

#endif
