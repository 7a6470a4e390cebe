// SPDX-License-Identifier: Apache-2.0
// A and B of a matrix product rounded to f16, four numbers next to each other as two words; 0 past
// the end of k. Names kALoad, kBLoad, p, a, a_vec, b, b_vec and b_pairs of the kernel,
// load_packed() and kPacked of packed_b.glsl, and kCode, which codes of int8 are multiplied by: a
// power of two, so that nothing is lost.
#ifndef VKF_SHADERS_COMMON_HALVES_GLSL
#define VKF_SHADERS_COMMON_HALVES_GLSL

uvec2 halves(vec4 x) {
    return uvec2(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)));
}

// Loads four numbers, from k on, of the row of A that begins at `row`: as they are, and rounded.
vec4 numbers_of_a(uint row, uint k) {
    vec4 values = vec4(0.0);
    if (kALoad == kMatmulAVecK) {
        if (k < p.k) {
            values = a_vec[(row + k) >> 2];
        }
    } else {
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            if (k + j < p.k) {
                values[j] = a[row + (k + j) * p.a_k];
            }
        }
    }
    return values;
}
uvec2 four_of_a(uint row, uint k) {
    return halves(numbers_of_a(row, k));
}

// Loads four numbers, from k on, of a column of B: where they are not packed, as they are; and
// rounded.
vec4 numbers_along_k(uint column, uint k) {
    return k < p.k ? b_vec[(column + k) >> 2] : vec4(0.0);
}
uvec2 four_along_k(uint column, uint k) {
    if (k >= p.k) {
        return uvec2(0);
    }
    if (kPacked == kPackedF16) {
        return b_pairs[(column >> 1) + (k >> 2)];
    }
    if (kPacked == kPackedInt8) {
        return halves(load_packed(column, k) * kCode);
    }
    return halves(kPacked != kPackedF32 ? load_packed(column, k) : numbers_along_k(column, k));
}

// Loads four numbers, from column n on, of the row of B that begins at `at`: as they are, and
// rounded.
vec4 numbers_along_n(uint at, uint n) {
    if (kBLoad == kMatmulBVecN) {
        return b_vec[(at + min(n, p.n - 4)) >> 2];
    }
    uvec4 columns = at + min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1)) * p.b_column;
    return vec4(b[columns.x], b[columns.y], b[columns.z], b[columns.w]);
}
uvec2 four_along_n(uint at, uint n) {
    return halves(numbers_along_n(at, n));
}

#endif
