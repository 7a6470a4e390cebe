// SPDX-License-Identifier: Apache-2.0
// Parameters of layer_norm.comp: LayerNorm and RMSNorm of rows, or of the sum of two, which is
// kept.
#ifndef VKF_SHADERS_LAYER_NORM_H
#define VKF_SHADERS_LAYER_NORM_H

#include "common/types.h"

VKF_CONSTANT(kNormBindingX, 0)
VKF_CONSTANT(kNormBindingWeight, 1)
VKF_CONSTANT(kNormBindingBias, 2)
VKF_CONSTANT(kNormBindingY, 3)
// these two where there is a sum; not bound elsewhere: Vulkan guarantees four
VKF_CONSTANT(kNormBindingResidual, 4)
VKF_CONSTANT(kNormBindingSum, 5)

// Specialization constants.
VKF_CONSTANT(kNormSpecLanes, 1)
VKF_CONSTANT(kNormSpecCentred, 2)  // 1: the mean is taken off (LayerNorm), 0: not (RMSNorm)
VKF_CONSTANT(kNormSpecWeight, 3)
VKF_CONSTANT(kNormSpecBias, 4)
// 1: the elements of all operands' rows are dense and every row of a multiple of four begins at one
VKF_CONSTANT(kNormSpecFours, 5)
VKF_CONSTANT(kNormSpecAdded, 6)  // 1: Sum = X + Residual, and Y is Sum's norm
VKF_CONSTANT(kNormSpecHeld, 7)   // fours of a row that a lane holds in registers; 0: none
// Where a lane has a row by fours: the invocations of a subgroup, which must be those of the group,
// that load weight and bias together. 0: each loads all of them.
VKF_CONSTANT(kNormSpecTogether, 8)

VKF_PUSH_BEGIN(NormPush)
    uint rows;
    uint width;
    // x's row i is x_offset + i / x_group * x_outer + i % x_group * x_inner
    uint x_offset;
    uint x_group;
    uint x_outer;
    uint x_inner;
    uint weight_offset;
    uint weight_stride;
    uint bias_offset;
    uint bias_stride;
    uint y_offset;
    uint residual_offset;
    uint sum_offset;
    float eps;
VKF_PUSH_END(NormPush)

#endif
