// SPDX-License-Identifier: Apache-2.0
// A matrix product's other operand, a residual or a gate, of its result's shape. Names kOther, p,
// bias and bias_vec of the kernel.
#ifndef VKF_SHADERS_COMMON_OTHER_GLSL
#define VKF_SHADERS_COMMON_OTHER_GLSL

layout(set = 0, binding = kMatmulBindingOther) readonly buffer Other { float other_operand[]; };
layout(set = 0, binding = kMatmulBindingOther) readonly buffer OtherVec { vec4 other_operand_vec[]; };

const bool kOtherBesideBias = kOther == kMatmulOtherResidualBesideBias || kOther == kMatmulOtherGateBesideBias;
const bool kOtherIsGate = kOther == kMatmulOtherGate || kOther == kMatmulOtherGateBesideBias;

// Adds the residual, or multiplies with the gate, of the output at c[at]: as an op of its own does,
// not contracted with what made the value.
float with_other(float value, uint at) {
    if (kOther == kMatmulOtherNone) {
        return value;
    }
    uint from = p.other_offset + (at - p.c_offset);
    float other;
    if (kOtherBesideBias) {
        other = other_operand[from];
    } else {
        other = bias[from];
    }
    precise float result = kOtherIsGate ? value * other : value + other;
    return result;
}

// Does this for four outputs.
vec4 with_other(vec4 value, uint at) {
    if (kOther == kMatmulOtherNone) {
        return value;
    }
    uint from = (p.other_offset + (at - p.c_offset)) >> 2;
    vec4 other;
    if (kOtherBesideBias) {
        other = other_operand_vec[from];
    } else {
        other = bias_vec[from];
    }
    precise vec4 result = kOtherIsGate ? value * other : value + other;
    return result;
}

#endif
