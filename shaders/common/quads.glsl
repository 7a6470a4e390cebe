// SPDX-License-Identifier: Apache-2.0
// What a matrix product's 4x4 sums become. Names kAct, kCVec, p, bias, c and c_vec of the kernel,
// and with_other() and activate().
#ifndef VKF_SHADERS_COMMON_QUADS_GLSL
#define VKF_SHADERS_COMMON_QUADS_GLSL

// The biases of columns n to n + 3.
vec4 biases(uint n) {
    if (p.has_bias == 0) {
        return vec4(0.0);
    }
    uvec4 at = p.bias_offset + min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1)) * p.bias_stride;
    return vec4(bias[at.x], bias[at.y], bias[at.z], bias[at.w]);
}

// Stores columns n to n + 3 of row m, as far as C has them.
void store_quad(vec4 sums, vec4 shift, uint m, uint n, uint c_base) {
    if (m >= p.m) {
        return;
    }
    vec4 value = sums * p.alpha + shift;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        value[j] = activate(kAct, value[j]);
    }
    uint at = c_base + m * p.c_row + n * p.c_column;
    if (kCVec != 0) {
        if (n < p.n) {
            c_vec[at >> 2] = with_other(value, at);
        }
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (n + j < p.n) {
            c[at + j * p.c_column] = with_other(value[j], at + j * p.c_column);
        }
    }
}

#endif
