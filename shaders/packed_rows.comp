#version 450
// SPDX-License-Identifier: Apache-2.0
// The formulas are those of packed weights (docs/numerics.md), and the words those of the host, bit
// for bit. A row which is not finite throughout becomes NaN in int8; int4 is not asked for of such.
#extension GL_GOOGLE_include_directive : require
#include "packed_rows.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kPackedRowsSpecType) const uint kType = kPackedF16;
layout(constant_id = kPackedRowsSpecUnpack) const uint kUnpack = 0;
layout(constant_id = kPackedRowsSpecLanes) const uint kLanes = 1;
layout(constant_id = kPackedRowsSpecFrom) const uint kFrom = kPackedF32;

layout(push_constant) uniform Push { PackedRowsPush p; };
layout(set = 0, binding = kPackedRowsBindingFrom) readonly buffer From { uint from[]; };
layout(set = 0, binding = kPackedRowsBindingTo) writeonly buffer To { uint to[]; };

#include "common/dispatch.glsl"
#include "common/packed.glsl"
#include "common/quantize.h"
#include "common/row.glsl"
#include "common/sixteen.glsl"

uint bits_at(uint row, uint column) {
    uint at = row + column * p.numbers_stride[3];
    if (column >= p.columns) {
        return 0u;
    }
    return kFrom == kPackedF32 ? from[at] : widened(kFrom, from[at >> 1] >> ((at & 1u) << 4) & 0xffffu);
}

// The bits of a magnitude.
uint magnitude_at(uint row, uint column) {
    return normal_or_zero(bits_at(row, column) & kMagnitudeBits);
}

// a / b of bits of normal positive numbers, rounded to the nearest; 0 below 2^-126.
uint quotient(uint a, uint b) {
    uint m = (a & kFractionBits) | kSmallestNormalBits;
    uint n = (b & kFractionBits) | kSmallestNormalBits;
    uint shift = m < n ? 24u : 23u;
    // but for a few units: m 2^shift / n
    uint whole = uint(float(m) / float(n) * float(1u << shift));
    // small, so that what is beyond 32 bits does not count
    int rest = int((m << shift) - whole * n);
    while (rest < 0) {
        --whole;
        rest += int(n);
    }
    while (rest >= int(n)) {
        ++whole;
        rest -= int(n);
    }
    whole += 2 * rest > int(n) ? 1u : 0u;  // a quotient is never half-way between two numbers
    int exponent = int(a >> 23) - int(b >> 23) + 150 - int(shift);
    return exponent < 0 ? 0u : normal_or_zero((uint(exponent) << 23) + whole - kSmallestNormalBits);
}

// The number in the scale's steps.
int steps_at(uint row, uint column, uint scale) {
    uint bits = bits_at(row, column);
    uint magnitude = normal_or_zero(bits & kMagnitudeBits);
    int steps = magnitude == 0u ? 0 : int(roundEven(uintBitsToFloat(quotient(magnitude, scale))));
    return (bits & kSignBit) != 0u ? -steps : steps;
}

void pack_sixteen(uint row, uint words, uint lane) {
    for (uint i = lane; i < ((p.columns + 7u) >> 3) << 2; i += kLanes) {
        uint low = bits_at(row, 2u * i);
        uint high = bits_at(row, 2u * i + 1u);
        to[words + i] = narrowed(kType, low) | narrowed(kType, high) << 16;
    }
}

void pack_int8(uint row, uint words, uint lane) {
    uint code_words = packed_code_words(kType, p.columns);
    uint largest = 0u;
    for (uint i = lane; i < p.columns; i += kLanes) {
        largest = max(largest, magnitude_at(row, i));
    }
    largest = floatBitsToUint(row_max(uintBitsToFloat(largest)));
    bool finite = largest < kInfinityBits;
    uint scale = finite && largest != 0u ? quotient(largest, floatBitsToUint(127.0)) : 0u;
    for (uint i = lane; i < code_words; i += kLanes) {
        uint word = 0u;
        for (uint j = 0u; j < 4u; ++j) {
            int code = scale != 0u ? steps_at(row, 4u * i + j, scale) : (finite ? 0 : 1);
            word |= (uint(code) & 255u) << (8u * j);
        }
        to[words + i] = word;
    }
    for (uint i = lane; i < 4u; i += kLanes) {
        to[words + code_words + i] = i != 0u ? 0u : (finite ? scale : kNanBits);
    }
}

void pack_int4(uint row, uint words, uint lane) {
    uint code_words = packed_code_words(kType, p.columns);
    uint groups = code_words >> 2;
    for (uint group = lane; group < ((groups + 3u) & ~3u); group += kLanes) {
        uint low = 0u;
        uint high = 0u;
        for (uint i = 0u; group < groups && i < kPackedGroup; ++i) {
            uint bits = bits_at(row, group * kPackedGroup + i);
            uint magnitude = normal_or_zero(bits & kMagnitudeBits);
            low = max(low, (bits & kSignBit) != 0u ? magnitude : 0u);
            high = max(high, (bits & kSignBit) != 0u ? 0u : magnitude);
        }
        uint scale = group_scale_of(low, high);
        int zero = scale != 0u && low != 0u ? int(roundEven(uintBitsToFloat(quotient(low, scale)))) : 0;
        to[words + code_words + group] = scale | uint(zero);
        for (uint i = 0u; group < groups && i < 4u; ++i) {
            uint word = 0u;
            for (uint j = 0u; scale != 0u && j < 8u; ++j) {
                int code = clamp(steps_at(row, group * kPackedGroup + 8u * i + j, scale) + zero, 0, 15);
                word |= uint(code) << (4u * j);
            }
            to[words + 4u * group + i] = word;
        }
    }
}

void pack(uint row, uint words) {
    uint lane = row_lane();
    if (kType == kPackedInt8) {
        pack_int8(row, words, lane);
    } else if (kType == kPackedInt4) {
        pack_int4(row, words, lane);
    } else {
        pack_sixteen(row, words, lane);
    }
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
    // A row with more than one lane has the whole group, which returns together.
    uint index = kLanes > 1u ? group : group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
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
