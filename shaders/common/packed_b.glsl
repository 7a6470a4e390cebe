// SPDX-License-Identifier: Apache-2.0
// B of a matrix product as packed weights: kPackedF32 where it is not. Names kBLoad, p, b_words and
// b_pairs of the kernel.
#ifndef VKF_SHADERS_COMMON_PACKED_B_GLSL
#define VKF_SHADERS_COMMON_PACKED_B_GLSL

#include "packed.glsl"

const uint kPacked = kBLoad > kMatmulBPacked ? kBLoad - kMatmulBPacked : kPackedF32;

// Where the group has a part of the sums: words by which that begins behind a row's begin. Scales
// lie behind all codes of a row.
uint part_words = 0u;

uint row_scales(uint row) {
    uint all = p.b_batch[0] != 0u ? p.b_k : p.k;
    return row - part_words + packed_code_words(kPacked, all);
}

// Loads four weights of a packed row from k on, a multiple of 4 below p.k; those of int8 without
// their scale.
vec4 load_packed(uint row, uint k) {
    if (kPacked == kPackedF16) {
        return unpack_f16(b_pairs[(row >> 1) + (k >> 2)]);
    }
    if (kPacked == kPackedBf16) {
        return unpack_bf16(b_pairs[(row >> 1) + (k >> 2)]);
    }
    if (kPacked == kPackedInt8) {
        return unpack_int8(b_words[row + (k >> 2)]);
    }
    uint scale = b_words[row_scales(row) + (part_words >> 2) + (k >> 5)];
    uint codes = b_words[row + (k >> 3)] >> ((k & 4) * 4);
    return less_zero(uvec4(codes) >> uvec4(0, 4, 8, 12), vec4(group_zero(scale))) * group_scale(scale);
}

// The factor that a column's sum is multiplied by.
float column_scale(uint row) {
    return kPacked == kPackedInt8 ? uintBitsToFloat(b_words[row_scales(row)]) : 1.0;
}

#endif
