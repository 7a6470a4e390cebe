// SPDX-License-Identifier: Apache-2.0
// The host's own work: pass 0 makes tokens, before attention; pass 1 doubles what attention gave,
// after it.
#version 450
layout(local_size_x = 64) in;
// 64 tokens of 8 numbers each
layout(set = 0, binding = 0) buffer Tokens { float x[512], y[512]; };
layout(push_constant) uniform Push { uint pass; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (pass == 0u) {
        x[i] = fract(float(i) * 0.618034) - 0.5;
    } else {
        y[i] *= 2.0;
    }
}
