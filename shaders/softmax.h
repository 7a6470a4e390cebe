// SPDX-License-Identifier: Apache-2.0
// Parameters of softmax.comp: attention weights of dense scores (..., queries, keys).
#ifndef VKF_SHADERS_SOFTMAX_H
#define VKF_SHADERS_SOFTMAX_H

#include "common/types.h"

VKF_CONSTANT(kSoftmaxBindingScores, 0)
VKF_CONSTANT(kSoftmaxBindingMask, 1)
VKF_CONSTANT(kSoftmaxBindingBias, 2)
VKF_CONSTANT(kSoftmaxBindingWeights, 3)

// Specialization constants.
VKF_CONSTANT(kSoftmaxSpecLanes, 1)
VKF_CONSTANT(kSoftmaxSpecMask, 2)     // 0: no boolean mask, 1: 1 = may attend, 2: 1 = may not
VKF_CONSTANT(kSoftmaxSpecBias, 3)
VKF_CONSTANT(kSoftmaxSpecCausal, 4)
VKF_CONSTANT(kSoftmaxSpecSoftcap, 5)

VKF_PUSH_BEGIN(SoftmaxPush)
    uint rows;
    uint keys;
    uint size[4];          // the outer sizes of the scores, queries last
    uint mask_stride[5];
    uint bias_stride[5];
    uint scores_offset;
    uint mask_offset;
    uint bias_offset;
    uint weights_offset;
    int causal_shift;      // causal: row r sees keys up to r + causal_shift
    uint window;           // causal: and of those the last `window`; 0: all
    float scale;
    float softcap;
    float fill;
VKF_PUSH_END(SoftmaxPush)

#endif
