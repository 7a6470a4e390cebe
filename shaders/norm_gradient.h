// SPDX-License-Identifier: Apache-2.0
// Parameters of norm_gradient.comp: the gradient of LayerNorm and RMSNorm at their input, of dense
// rows.
#ifndef VKF_SHADERS_NORM_GRADIENT_H
#define VKF_SHADERS_NORM_GRADIENT_H

#include "common/types.h"

VKF_CONSTANT(kNormGradientBindingX, 0)
VKF_CONSTANT(kNormGradientBindingWeight, 1)
VKF_CONSTANT(kNormGradientBindingDy, 2)
VKF_CONSTANT(kNormGradientBindingDx, 3)

VKF_CONSTANT(kNormGradientSpecLanes, 1)
// 1: the mean was taken off (LayerNorm), 0: not (RMSNorm)
VKF_CONSTANT(kNormGradientSpecCentred, 2)
VKF_CONSTANT(kNormGradientSpecWeight, 3)   // 1: there is a weight, dense
VKF_CONSTANT(kNormGradientSpecFours, 4)    // 1: rows are read and written four elements at a time
// fours of a row that a lane holds in registers; 0: it reads them again
VKF_CONSTANT(kNormGradientSpecHeld, 5)

VKF_PUSH_BEGIN(NormGradientPush)
    uint rows;
    uint width;
    uint x_offset;
    uint weight_offset;
    uint dy_offset;
    uint dx_offset;
    float eps;
VKF_PUSH_END(NormGradientPush)

#endif
