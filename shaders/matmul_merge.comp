#version 450
// SPDX-License-Identifier: Apache-2.0
// The end of a matrix product whose sums were divided among groups: A holds k parts of C's sums,
// (m, n) each and a_batch[0] apart, which are added up in their order; B is the same buffer, by
// vec4. What the sums become is as in the other kernels of matmul.h. An invocation takes four
// columns of a row.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "matmul.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecCVec) const uint kCVec = 0;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;

layout(set = 0, binding = kMatmulBindingA) readonly buffer A { float a[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BVec { vec4 b_vec[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer BiasVec { vec4 bias_vec[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer C { float c[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer CVec { vec4 c_vec[]; };

layout(push_constant) uniform Push { MatmulPush p; };

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/other.glsl"
#include "common/quads.glsl"

// The part's sums of columns n to n + 3 of row m.
vec4 sums_of(uint part, uint m, uint n) {
    uint row = p.a_offset + part * p.a_batch[0] + m * p.n;
    if (kCVec != 0) {
        return b_vec[(row + n) >> 2];
    }
    uvec4 at = row + min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1));
    return vec4(a[at.x], a[at.y], a[at.z], a[at.w]);
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint m = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint n = take_dimension(m, (p.n + 3) / 4) * 4;
    if (m >= p.m) {
        return;
    }
    vec4 sums = sums_of(0, m, n);
    for (uint part = 1; part < p.k; ++part) {
        sums += sums_of(part, m, n);
    }
    store_quad(sums, biases(n), m, n, p.c_offset);
}
