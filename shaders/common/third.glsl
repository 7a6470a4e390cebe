// SPDX-License-Identifier: Apache-2.0
// R, a matrix product's operand of its result's shape. Names kThird, p, bias and bias_vec of the
// kernel.
#ifndef VKF_SHADERS_COMMON_THIRD_GLSL
#define VKF_SHADERS_COMMON_THIRD_GLSL

layout(set = 0, binding = kMatmulBindingR) readonly buffer R { float r[]; };
layout(set = 0, binding = kMatmulBindingR) readonly buffer RVec { vec4 r_vec[]; };

const bool kRApart = kThird == kMatmulThirdAddedApart || kThird == kMatmulThirdTimesApart;
const bool kRTimes = kThird == kMatmulThirdTimes || kThird == kMatmulThirdTimesApart;

// What becomes of an output that is stored at c[at].
float with_third(float value, uint at) {
    if (kThird == kMatmulThirdNone) {
        return value;
    }
    uint from = p.r_offset + (at - p.c_offset);
    float other;
    if (kRApart) {
        other = r[from];
    } else {
        other = bias[from];
    }
    return kRTimes ? value * other : value + other;
}

// The same of four.
vec4 with_third(vec4 value, uint at) {
    if (kThird == kMatmulThirdNone) {
        return value;
    }
    uint from = (p.r_offset + (at - p.c_offset)) >> 2;
    vec4 other;
    if (kRApart) {
        other = r_vec[from];
    } else {
        other = bias_vec[from];
    }
    return kRTimes ? value * other : value + other;
}

#endif
