// SPDX-License-Identifier: Apache-2.0
// Numbers out of the words of packed.h. With UNPACK_BY_PRODUCTS, which kernels for processors
// define, words are multiplied and masked where others shift them, for the same bits: SwiftShader
// shifts a vector's numbers one by one, in each lane.
#ifndef VKF_SHADERS_COMMON_PACKED_GLSL
#define VKF_SHADERS_COMMON_PACKED_GLSL

#include "packed.h"

// The bits of 2^23: with them, a whole number below 2^23 in the bits of the fraction is 2^23 more
// than itself.
const uint kWholeBits = 0x4B000000u;

// Words before a row's scales.
uint packed_code_words(uint type, uint columns) {
    return (type == kPackedInt4 ? (columns + 31) >> 5 : (columns + 15) >> 4) << 2;
}

// Unpacks four numbers next to each other.
vec4 unpack_f16(uvec2 words) {
    return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
}

vec4 unpack_bf16(uvec2 words) {
    const uint kUpper = 0xFFFF0000u;
#ifdef UNPACK_BY_PRODUCTS
    uvec2 lower = words * (1u << 16);
#else
    uvec2 lower = words << 16;
#endif
    return uintBitsToFloat(uvec4(lower.x, words.x & kUpper, lower.y, words.y & kUpper));
}

// Unpacks four codes of int8, without the scale.
vec4 unpack_int8(uint word) {
#ifdef UNPACK_BY_PRODUCTS
    const float kOneIn2To24 = 5.9604644775390625e-8;
    return vec4(ivec4(uvec4(word) * uvec4(1u << 24, 1u << 16, 1u << 8, 1u) & 0xff000000u)) * kOneIn2To24;
#else
    return vec4(ivec4(uvec4(word) << uvec4(24, 16, 8, 0)) >> 24);
#endif
}

// Unpacks the `four`-th four numbers of 16 bytes of any type but int4; those of int8 without the
// scale.
vec4 unpack_four(uint type, uvec4 words, uint four) {
    switch (type) {
    case kPackedF16:
        return unpack_f16(four == 0 ? words.xy : words.zw);
    case kPackedBf16:
        return unpack_bf16(four == 0 ? words.xy : words.zw);
    case kPackedInt8:
        return unpack_int8(words[four]);
    default:
        return uintBitsToFloat(words);
    }
}

// The scale of a group of int4, or those of four.
float group_scale(uint word) {
    return uintBitsToFloat(word & ~15u);
}
vec4 group_scale(uvec4 words) {
    return uintBitsToFloat(words & ~15u);
}

// The zero point of a group of int4, as less_zero() takes it.
float group_zero(uint word) {
    return uintBitsToFloat(kWholeBits | (word & 15u));
}

// Computes code - zero, exactly; each code is in the lowest four bits.
vec4 less_zero(uvec4 codes, vec4 zero) {
    return uintBitsToFloat((codes & 15u) | kWholeBits) - zero;
}

#endif
