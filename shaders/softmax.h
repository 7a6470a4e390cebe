// SPDX-License-Identifier: Apache-2.0
// Parameters of softmax.comp: attention weights of dense scores (..., queries, keys).
#ifndef VKF_SHADERS_SOFTMAX_H
#define VKF_SHADERS_SOFTMAX_H

#include "common/types.h"

VKF_CONSTANT(kSoftmaxBindingScores, 0)
VKF_CONSTANT(kSoftmaxBindingMask, 1)
// the operand beside the scores, see kSoftmaxSpecTerm; any buffer where there is none
VKF_CONSTANT(kSoftmaxBindingTerm, 2)
VKF_CONSTANT(kSoftmaxBindingOut, 3)

// Specialization constants.
VKF_CONSTANT(kSoftmaxSpecLanes, 1)
VKF_CONSTANT(kSoftmaxSpecMask, 2)     // 0: no boolean mask, 1: 1 = may attend, 2: 1 = may not
VKF_CONSTANT(kSoftmaxSpecTerm, 3)    // a kSoftmaxTerm... below
VKF_CONSTANT(kSoftmaxSpecCausal, 4)
VKF_CONSTANT(kSoftmaxSpecSoftcap, 5)
VKF_CONSTANT(kSoftmaxSpecOutput, 6)  // a kSoftmaxOutput... below
// fours a turn, for weights whose scores, mask and bias lie in fours; 0: key by key
VKF_CONSTANT(kSoftmaxSpecFours, 7)
// weights: fours of a row that a lane holds in registers; 0: the result keeps them
VKF_CONSTANT(kSoftmaxSpecHeld, 8)
// weights: 1: exponentials of what is only scaled are computed twice, not kept by the result
VKF_CONSTANT(kSoftmaxSpecAgain, 9)

VKF_CONSTANT(kSoftmaxMostFours, 4)   // most fours in a turn: a line of a processor's cache

VKF_CONSTANT(kSoftmaxTermNone, 0)
VKF_CONSTANT(kSoftmaxTermBias, 1)    // added to the scores
VKF_CONSTANT(kSoftmaxTermSlopes, 2)  // ALiBi's: times the distance, off the scores
VKF_CONSTANT(kSoftmaxTermSinks, 3)   // logits, one a head, that take part in the sum alone

VKF_CONSTANT(kSoftmaxOutputWeights, 0)
// scale, softcap and bias only: the mask and the softmax are another dispatch's
VKF_CONSTANT(kSoftmaxOutputScores, 1)
VKF_CONSTANT(kSoftmaxOutputLogSumExp, 2)  // one a row
VKF_CONSTANT(kSoftmaxOutputHard, 3)
// two a row: S, and what is left of log-sum-exp less smoothing times the mean after
// (1 - smoothing) S
VKF_CONSTANT(kSoftmaxOutputSmoothed, 4)
// log-sum-exp, and what rounding took off it: two a row
VKF_CONSTANT(kSoftmaxOutputLogSumExpParts, 5)
VKF_CONSTANT(kSoftmaxOutputSinkWeight, 6)  // one a row

VKF_PUSH_BEGIN(SoftmaxPush)
    uint rows;
    uint keys;
    uint size[4];          // the outer sizes of the scores, queries last
    uint mask_stride[5];
    uint term_stride[5];
    uint scores_offset;
    uint mask_offset;
    uint term_offset;
    uint out_offset;
    // row r stands at key r + causal_shift, and with causal sees no later one
    int causal_shift;
    uint window;           // causal: and of those the last `window`; 0: all
    float scale;
    float softcap;
    float fill;
    float smoothing;       // label smoothing
VKF_PUSH_END(SoftmaxPush)

#endif
