// SPDX-License-Identifier: Apache-2.0
// Activations for epilogues and element-wise kernels. `act` should be a specialization constant, so
// that the functions not asked for are not compiled. NaN is carried by each.
#ifndef VKF_SHADERS_COMMON_ACTIVATION_GLSL
#define VKF_SHADERS_COMMON_ACTIVATION_GLSL

#include "common/activation.h"
#include "common/numeric.glsl"

float sigmoid(float x) {
    return 1.0 / (1.0 + safe_exp(-x));
}

float gelu(float x) {
    return 0.5 * x * (1.0 + safe_erf(x * 0.70710678));
}

float gelu_tanh(float x) {
    return 0.5 * x * (1.0 + safe_tanh(0.79788456 * (x + 0.044715 * x * x * x)));
}

float activate(uint act, float x) {
    switch (act) {
    case kActRelu:
        return is_nan(x) ? x : max(x, 0.0);
    case kActGelu:
        return gelu(x);
    case kActGeluTanh:
        return gelu_tanh(x);
    case kActSilu:
        return x * sigmoid(x);
    case kActTanh:
        return safe_tanh(x);
    case kActSigmoid:
        return sigmoid(x);
    case kActRsqrt:
        return 1.0 / sqrt(x);
    default:
        return x;
    }
}

#endif
