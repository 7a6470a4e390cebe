// SPDX-License-Identifier: Apache-2.0
// The numbers by which kernels know activations.
#ifndef VKF_SHADERS_COMMON_ACTIVATION_H
#define VKF_SHADERS_COMMON_ACTIVATION_H

#include "types.h"

VKF_CONSTANT(kActNone, 0)
VKF_CONSTANT(kActRelu, 1)
VKF_CONSTANT(kActGelu, 2)      // exact: x Phi(x), by erf
VKF_CONSTANT(kActGeluTanh, 3)  // the tanh approximation
VKF_CONSTANT(kActSilu, 4)
VKF_CONSTANT(kActTanh, 5)
VKF_CONSTANT(kActSigmoid, 6)
VKF_CONSTANT(kActRsqrt, 7)

#endif
