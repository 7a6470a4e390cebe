#version 450
// SPDX-License-Identifier: Apache-2.0
// y[i] = kFmaChains times the limit of a -> a x[0] + x[1], which comes soon when |x[0]| is small.
#extension GL_GOOGLE_include_directive : require
#include "fma.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kFmaSpecFused) const uint kFused = 1;

layout(push_constant) uniform Push { FmaPush p; };
layout(set = 0, binding = kFmaBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kFmaBindingY) writeonly buffer Y { float y[]; };

#include "../../../shaders/common/dispatch.glsl"

vec4 multiply_add(vec4 v, vec4 factor, vec4 term) { return kFused == 1u ? fma(v, factor, term) : v * factor + term; }

#define STEP \
    a = multiply_add(a, factor, term); \
    b = multiply_add(b, factor, term); \
    c = multiply_add(c, factor, term);

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    vec4 factor = vec4(x[0]);
    vec4 term = vec4(x[1]);
    vec4 a = vec4(i & 7u);  // no array: indexed by a loop, it would lie in memory on some devices
    vec4 b = a + 1.0;
    vec4 c = a + 2.0;
    for (uint step = 0u; step < p.steps; ++step) {
        STEP STEP STEP STEP STEP STEP STEP STEP
    }
    vec4 sum = a + b + c;
    if (i < p.count) {
        y[i] = sum.x + sum.y + sum.z + sum.w;
    }
}
