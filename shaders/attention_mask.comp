#version 450
// SPDX-License-Identifier: Apache-2.0
// A word of bits an invocation.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "attention_mask.h"

layout(local_size_x_id = 0) in;
layout(set = 0, binding = kPackMaskBindingMask) readonly buffer Mask { uint mask[]; };
layout(set = 0, binding = kPackMaskBindingBits) writeonly buffer Bits { uint bits[]; };

layout(push_constant) uniform Push { AttentionMaskPush p; };

#include "common/dispatch.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint rest = index;
    uint first = take_dimension(rest, p.words) * 32u;
    uint at = p.offset + take_dimension(rest, p.size[2]) * p.stride[2];
    at += take_dimension(rest, p.size[1]) * p.stride[1];
    at += rest * p.stride[0];
    uint word = 0u;
    uint left = min(p.keys - first, 32u);
    [[dont_unroll]] for (uint i = 0u; i < left; ++i) {
        bool keep = (mask[at + (first + i) * p.stride[3]] != 0u) != (p.flip != 0u);
        word |= keep ? 1u << i : 0u;
    }
    bits[index] = word;
}
