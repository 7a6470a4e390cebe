// SPDX-License-Identifier: Apache-2.0
// Parameters of softmax_gradient.comp: from the gradient of attention weights, of scores after
// scale and softcap, or of a row's log-sum-exp to that of the scores before.
#ifndef VKF_SHADERS_SOFTMAX_GRADIENT_H
#define VKF_SHADERS_SOFTMAX_GRADIENT_H

#include "common/types.h"

// All are dense. Weights: not read for kSoftmaxGradientScores. Dy is what comes in: a row each, or
// for kSoftmaxGradientLogSumExp a number a row. Scores are read where there is a softcap; for
// kSoftmaxGradientSink they are the sink's weights, one a row.
VKF_CONSTANT(kSoftmaxGradientBindingWeights, 0)
VKF_CONSTANT(kSoftmaxGradientBindingDy, 1)
VKF_CONSTANT(kSoftmaxGradientBindingScores, 2)
VKF_CONSTANT(kSoftmaxGradientBindingOut, 3)

VKF_CONSTANT(kSoftmaxGradientSpecLanes, 1)
VKF_CONSTANT(kSoftmaxGradientSpecOf, 2)       // a kSoftmaxGradient... below
VKF_CONSTANT(kSoftmaxGradientSpecSoftcap, 3)  // 1: p.softcap applies
// 1: rows are read and written four elements at a time
VKF_CONSTANT(kSoftmaxGradientSpecFours, 4)

VKF_CONSTANT(kSoftmaxGradientWeights, 0)
VKF_CONSTANT(kSoftmaxGradientScores, 1)
VKF_CONSTANT(kSoftmaxGradientLogSumExp, 2)
// a number a row, its part of the sink's gradient: -weight sum w dy
VKF_CONSTANT(kSoftmaxGradientSink, 3)

VKF_PUSH_BEGIN(SoftmaxGradientPush)
    uint rows;
    uint width;
    uint weights_offset;
    uint dy_offset;
    uint scores_offset;
    uint out_offset;
    float scale;
    float softcap;
VKF_PUSH_END(SoftmaxGradientPush)

#endif
