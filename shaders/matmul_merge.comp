#version 450
// SPDX-License-Identifier: Apache-2.0
// The end of a matrix product whose sums were divided among groups: A holds k parts of C's sums,
// (m, n) each and a_batch[0] apart, which are added up in their order. A shader must use each
// binding below its last, so B is the same buffer, and the first part is read there. What the sums
// become is as in the other kernels of matmul.h. An invocation takes an output.
#extension GL_GOOGLE_include_directive : require
#include "matmul.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;

layout(set = 0, binding = kMatmulBindingA) readonly buffer A { float a[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer B { float b[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer BiasVec { vec4 bias_vec[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer C { float c[]; };

layout(push_constant) uniform Push { MatmulPush p; };

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/other.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.m * p.n) {
        return;
    }
    float sum = b[p.a_offset + index];
    for (uint part = 1; part < p.k; ++part) {
        sum += a[p.a_offset + part * p.a_batch[0] + index];
    }
    uint m = index;
    uint n = take_dimension(m, p.n);
    float value = sum * p.alpha;
    if (p.has_bias != 0) {
        value += bias[p.bias_offset + n * p.bias_stride];
    }
    uint at = p.c_offset + m * p.c_row + n;
    c[at] = with_other(activate(kAct, value), at);
}
