#version 450
// SPDX-License-Identifier: Apache-2.0
// The formulas are those of packed weights (docs/numerics.md), but that a row which is not finite throughout becomes NaN in int8.
#extension GL_GOOGLE_include_directive : require
#include "packed_rows.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kPackedRowsSpecType) const uint kType = kPackedF16;
layout(constant_id = kPackedRowsSpecUnpack) const uint kUnpack = 0;

layout(push_constant) uniform Push { PackedRowsPush p; };
layout(set = 0, binding = kPackedRowsBindingFrom) readonly buffer From { uint from[]; };
layout(set = 0, binding = kPackedRowsBindingTo) writeonly buffer To { uint to[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"
#include "common/packed.glsl"

const uint kSmallestNormalBits = 0x00800000u;

// To the nearest, ties to even.
uint half_of(float x) {
    uint sign = floatBitsToUint(x) >> 16 & 0x8000u;
    uint magnitude = floatBitsToUint(x) & kMagnitudeBits;
    if (magnitude > kInfinityBits) {
        return sign | 0x7e00u;
    }
    if (magnitude >= floatBitsToUint(65520.0)) {
        return sign | 0x7c00u;
    }
    if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, which is what the last bit of 0.5 stands for
        return sign | (floatBitsToUint(uintBitsToFloat(magnitude) + 0.5) - floatBitsToUint(0.5));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return sign | (magnitude - (112u << 23)) >> 13;
}

uint bfloat_of(float x) {
    uint bits = floatBitsToUint(x);
    return (bits & kMagnitudeBits) > kInfinityBits ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

float number_at(uint row, uint column) {
    return column < p.columns ? uintBitsToFloat(from[row + column * p.numbers_stride[3]]) : 0.0;
}

void pack(uint row, uint words) {
    if (kType != kPackedInt8) {
        for (uint i = 0u; i < ((p.columns + 7u) >> 3) << 2; ++i) {
            float low = number_at(row, 2u * i);
            float high = number_at(row, 2u * i + 1u);
            to[words + i] =
                kType == kPackedF16 ? half_of(low) | half_of(high) << 16 : bfloat_of(low) | bfloat_of(high) << 16;
        }
        return;
    }
    uint code_words = packed_code_words(kType, p.columns);
    uint largest = 0u;
    for (uint i = 0u; i < p.columns; ++i) {
        largest = max(largest, floatBitsToUint(number_at(row, i)) & kMagnitudeBits);
    }
    bool finite = largest < kInfinityBits;
    float scale = uintBitsToFloat(largest) / 127.0;
    scale = floatBitsToUint(scale) < kSmallestNormalBits ? 0.0 : scale;  // which a device may take for it
    for (uint i = 0u; i < code_words; ++i) {
        uint word = 0u;
        for (uint j = 0u; j < 4u; ++j) {
            float code = scale > 0.0 ? clamp(roundEven(number_at(row, 4u * i + j) / scale), -127.0, 127.0) : 0.0;
            word |= (uint(int(finite ? code : 1.0)) & 255u) << (8u * j);
        }
        to[words + i] = word;
    }
    to[words + code_words] = finite ? floatBitsToUint(scale) : kNanBits;
}

void unpack(uint words, uint numbers, uint column) {
    vec4 found;
    if (kType == kPackedInt8) {
        float scale = uintBitsToFloat(from[words + packed_code_words(kType, p.columns)]);
        found = unpack_int8(from[words + column / 4u]) * scale;
    } else {
        uvec2 pairs = uvec2(from[words + column / 2u], from[words + column / 2u + 1u]);
        found = kType == kPackedF16 ? unpack_f16(pairs) : unpack_bf16(pairs);
    }
    for (uint i = 0u; i < 4u && column + i < p.columns; ++i) {
        to[numbers + (column + i) * p.numbers_stride[3]] = floatBitsToUint(found[i]);
    }
}

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint fours = kUnpack != 0u ? (p.columns + 3u) / 4u : 1u;
    if (group >= p.group_count || index >= p.rows * fours) {
        return;
    }
    uint rest = index;
    uint column = take_dimension(rest, fours) * 4u;
    uint inner = take_dimension(rest, p.size[1]);
    uint middle = take_dimension(rest, p.size[0]);
    uint numbers =
        p.numbers_offset + rest * p.numbers_stride[0] + middle * p.numbers_stride[1] + inner * p.numbers_stride[2];
    uint words = p.words_offset + rest * p.words_stride[0] + middle * p.words_stride[1] + inner * p.words_stride[2];
    if (kUnpack != 0u) {
        unpack(words, numbers, column);
    } else {
        pack(numbers, words);
    }
}
