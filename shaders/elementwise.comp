#version 450
// SPDX-License-Identifier: Apache-2.0
//! variant elementwise -DWIDE=0
// Everything that works element by element on one or two strided operands. Buffers are words, so
// that copies and masks keep bits; arithmetic reads them as fp32. Neighbouring invocations take
// neighbouring elements.
#extension GL_GOOGLE_include_directive : require
#include "common/fours.glsl"
#include "elementwise.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kElementwiseSpecCombine) const uint kCombine = kCombineNone;
layout(constant_id = kElementwiseSpecActivation) const uint kActivation = 0;
layout(constant_id = kElementwiseSpecDense) const uint kDense = 0;
layout(constant_id = kElementwiseSpecFours) const uint kFours = 0;

layout(push_constant) uniform Push { ElementwisePush p; };
layout(set = 0, binding = kElementwiseBindingA) readonly buffer A { uint a[]; };
QUADS_IN(kElementwiseBindingA, AFours, a_fours)
layout(set = 0, binding = kElementwiseBindingB) readonly buffer B { uint b[]; };
QUADS_IN(kElementwiseBindingB, BFours, b_fours)
layout(set = 0, binding = kElementwiseBindingOut) writeonly buffer Out { uint result[]; };
QUADS_OUT(kElementwiseBindingOut, OutFours, result_fours)

#include "common/activation_gradient.glsl"
#include "common/dispatch.glsl"
#include "common/random.glsl"

const bool kTwoOperands = kCombine == kCombineAdd || kCombine == kCombineMul || kCombine == kCombineMasks ||
                          kCombine == kCombineActivationGradient;

uint combine(uint index, uint x, uint second) {
    if (kCombine == kCombineCopy) {
        return x;
    }
    if (kCombine == kCombineZero) {
        return 0u;
    }
    if (kCombine == kCombineActivationGradient) {
        return floatBitsToUint(activation_gradient(kActivation, uintBitsToFloat(x), uintBitsToFloat(second)));
    }
    if (kCombine == kCombineMasks) {
        bool keep_a = (x != 0u) != (p.flip_a != 0u);
        bool keep_b = (second != 0u) != (p.flip_b != 0u);
        return keep_a && keep_b ? 1u : 0u;
    }
    if (kCombine == kCombineDropout) {
        // a masked weight stays one; alpha = 0 drops everything, whatever it is
        bool keep = p.alpha != 0.0 && random_bits(index, p.seed) >= p.threshold;
        return x == kSignBit ? x : (keep ? floatBitsToUint(p.alpha * uintBitsToFloat(x)) : 0u);
    }
    float v = activate(kActivation, p.alpha * uintBitsToFloat(x));
    if (kCombine == kCombineAdd) {
        v += uintBitsToFloat(second);
    } else if (kCombine == kCombineMul) {
        v *= uintBitsToFloat(second);
    }
    return floatBitsToUint(v);
}

void element(uint index) {
    uint at_a = index;
    uint at_b = index;
    uint at_out = index;
    if (kDense == 0u) {
        at_a = strided_offset(index, p.size, p.a_stride);
        at_b = strided_offset(index, p.size, p.b_stride);
        at_out = strided_offset(index, p.size, p.out_stride);
    }
    result[p.out_offset + at_out] = combine(index, a[p.a_offset + at_a], kTwoOperands ? b[p.b_offset + at_b] : 0u);
}

// Four elements, of operands that begin `from` fours into their buffers: A, B and the result.
void four_elements(uvec3 from, uint four) {
    uvec4 x = VKF_FOUR(a_fours, from.x + four);
    uvec4 second = uvec4(0u);
    if (kTwoOperands) {
        second = VKF_FOUR(b_fours, from.y + four);
    }
    uint index = 4u * four;
    VKF_PUT_FOUR(result_fours, from.z + four,
                 uvec4(combine(index, x.x, second.x), combine(index + 1u, x.y, second.y),
                       combine(index + 2u, x.z, second.z), combine(index + 3u, x.w, second.w)));
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    if (kFours != 0u) {
        uint first_four = first_item(group, gl_WorkGroupSize.x, gl_LocalInvocationID.x, kFours);
        uint end = min(first_four + kFours, p.count / 4u);
        uvec3 from = uvec3(p.a_offset, p.b_offset, p.out_offset) >> 2;
        for (uint four = first_four; four < end; ++four) {
            four_elements(from, four);
        }
        return;
    }
    uint first = first_strided_item(group, gl_WorkGroupSize.x, gl_LocalInvocationID.x, kElementwisePerInvocation);
    for (uint i = 0; i < kElementwisePerInvocation; ++i) {
        uint index = first + i * gl_WorkGroupSize.x;
        if (index < p.count) {
            element(index);
        }
    }
}
