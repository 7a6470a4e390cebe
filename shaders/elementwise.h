// SPDX-License-Identifier: Apache-2.0
// Parameters of elementwise.comp: out = combine(activation(alpha * a), b), every operand strided
// over one set of sizes.
#ifndef VKF_SHADERS_ELEMENTWISE_H
#define VKF_SHADERS_ELEMENTWISE_H

#include "common/types.h"

VKF_CONSTANT(kElementwiseBindingA, 0)
VKF_CONSTANT(kElementwiseBindingB, 1)
VKF_CONSTANT(kElementwiseBindingOut, 2)

// Specialization constants.
VKF_CONSTANT(kElementwiseSpecCombine, 1)
VKF_CONSTANT(kElementwiseSpecActivation, 2)
// 1: all operands dense and of one shape; the strides are not looked at
VKF_CONSTANT(kElementwiseSpecDense, 3)
// The number of fours that an invocation takes. Not 0: all operands are dense, of a multiple of
// four elements from a multiple of four on.
VKF_CONSTANT(kElementwiseSpecFours, 4)

VKF_CONSTANT(kCombineNone, 0)   // activation(alpha * a)
VKF_CONSTANT(kCombineAdd, 1)
VKF_CONSTANT(kCombineMul, 2)
VKF_CONSTANT(kCombineCopy, 3)   // the bits of a
VKF_CONSTANT(kCombineMasks, 4)  // 1 where (a != 0) != flip_a and (b != 0) != flip_b
VKF_CONSTANT(kCombineDropout, 5) // alpha * a where random(index, seed) >= threshold, else 0

VKF_CONSTANT(kCombineZero, 6)    // 0, whatever a holds
// activation'(a) * b; for some activations a is what the activation gave: see
// common/activation_gradient.glsl
VKF_CONSTANT(kCombineActivationGradient, 7)

VKF_CONSTANT(kElementwisePerInvocation, 4)

VKF_PUSH_BEGIN(ElementwisePush)
    uint count;
    uint size[5];
    uint a_stride[5];
    uint b_stride[5];
    uint out_stride[5];
    uint a_offset;
    uint b_offset;
    uint out_offset;
    float alpha;
    uint flip_a;     // masks: 1, or 0
    uint flip_b;     // masks: 1, or 0
    uint seed;       // dropout
    uint threshold;  // dropout
VKF_PUSH_END(ElementwisePush)

#endif
