// SPDX-License-Identifier: Apache-2.0
// The third operand of a matrix product, where it is no bias. Names kThird, p, bias and bias_vec of the kernel.
#ifndef VKF_SHADERS_COMMON_THIRD_GLSL
#define VKF_SHADERS_COMMON_THIRD_GLSL

// What becomes of an output that is stored at c[at].
float with_third(float value, uint at) {
    if (kThird == kMatmulThirdBias) {
        return value;
    }
    float other = bias[p.bias_offset + (at - p.c_offset)];
    return kThird == kMatmulThirdAdded ? value + other : value * other;
}

// The same of four.
vec4 with_third(vec4 value, uint at) {
    if (kThird == kMatmulThirdBias) {
        return value;
    }
    vec4 other = bias_vec[(p.bias_offset + (at - p.c_offset)) >> 2];
    return kThird == kMatmulThirdAdded ? value + other : value * other;
}

#endif
