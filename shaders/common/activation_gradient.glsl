// SPDX-License-Identifier: Apache-2.0
// Derivatives of the activations of common/activation.glsl.
#ifndef VKF_SHADERS_COMMON_ACTIVATION_GRADIENT_GLSL
#define VKF_SHADERS_COMMON_ACTIVATION_GRADIENT_GLSL

#include "common/activation.glsl"

// dy times the derivative of the activation of x. relu, tanh, sigmoid and rsqrt tell theirs by what
// they gave: x is that.
float activation_gradient(uint act, float x, float dy) {
    switch (act) {
    case kActRelu:
        return is_nan(x) ? x : (x > 0.0 ? dy : 0.0);
    case kActGelu:
        return dy * (0.5 * (1.0 + safe_erf(x * 0.70710678)) + x * 0.39894228 * safe_exp(-0.5 * x * x));
    case kActGeluTanh: {
        float t = safe_tanh(0.79788456 * (x + 0.044715 * x * x * x));
        float slope = 1.0 - t * t;  // where it is 0, x * x may be infinite
        float rise = slope == 0.0 ? 0.0 : 0.5 * x * slope * 0.79788456 * (1.0 + 0.134145 * x * x);
        return dy * (0.5 * (1.0 + t) + rise);
    }
    case kActSilu: {
        float s = sigmoid(x);
        return dy * (s * (1.0 + x * (1.0 - s)));
    }
    case kActTanh:
        return dy * (1.0 - x * x);
    case kActSigmoid:
        return dy * (x * (1.0 - x));
    case kActRsqrt:
        return dy * (-0.5 * x * x * x);
    default:
        return dy;
    }
}

#endif
