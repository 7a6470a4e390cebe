// SPDX-License-Identifier: Apache-2.0
// Parameters of softmax_gradient.comp: from the gradient of attention weights, of scores after
// scale and softcap, or of a row's log-sum-exp to that of the scores before.
#ifndef VKF_SHADERS_SOFTMAX_GRADIENT_H
#define VKF_SHADERS_SOFTMAX_GRADIENT_H

#include "common/types.h"

// Dense rows: the weights (of kSoftmaxGradientScores: not bound to anything else than Dy); what
// comes in, a row each or of kSoftmaxGradientLogSumExp a number each; the scores, where there is a
// softcap; the result.
VKF_CONSTANT(kSoftmaxGradientBindingWeights, 0)
VKF_CONSTANT(kSoftmaxGradientBindingDy, 1)
VKF_CONSTANT(kSoftmaxGradientBindingScores, 2)
VKF_CONSTANT(kSoftmaxGradientBindingOut, 3)

VKF_CONSTANT(kSoftmaxGradientSpecLanes, 1)
VKF_CONSTANT(kSoftmaxGradientSpecOf, 2)       // a kSoftmaxGradient... below
VKF_CONSTANT(kSoftmaxGradientSpecSoftcap, 3)  // 1: p.softcap applies
VKF_CONSTANT(kSoftmaxGradientSpecFours, 4)    // 1: rows are read and written four elements at a time

VKF_CONSTANT(kSoftmaxGradientWeights, 0)
VKF_CONSTANT(kSoftmaxGradientScores, 1)
VKF_CONSTANT(kSoftmaxGradientLogSumExp, 2)
// the sum of a row's weights times Dy alone, less what the sinks' weight is: -(1 - sum w) sum w dy
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
