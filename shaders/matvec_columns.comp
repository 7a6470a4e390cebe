#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product for few rows of A (1, 2 or 4 per group) with weights stored (n, k), for GPUs. All
// invocations of a group share the sums of kRows rows by kMatvecColumns columns: each loads 16
// bytes of every column at a time, which serve all rows, and numbers of A, which serve all columns.
// So kMatvecColumns loads are under way before the first is needed. Then the parts of each sum
// meet: by arithmetic of subgroups, whatever their size, with one barrier, or in shared memory with
// three.
//
// A must be kMatmulAVecK, B kMatmulBVecK or packed, and k a multiple of kNumbers; AMasked and CVec
// do not apply. Rows and columns past the end repeat the last one and are not stored.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "common/subgroups.h"
#include "matmul.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecRows) const uint kRows = 1;
layout(constant_id = kMatmulSpecBLoad) const uint kBLoad = kMatmulBVecK;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;
layout(constant_id = kSpecSubgroups) const uint kSubgroups = 0;

layout(set = 0, binding = kMatmulBindingA) readonly buffer AVec { vec4 a_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BWords { uint b_words[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BPairs { uvec2 b_pairs[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BQuads { uvec4 b_quads[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer BiasVec { vec4 bias_vec[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer C { float c[]; };

layout(push_constant) uniform Push { MatmulPush p; };

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/product.glsl"
#include "common/packed_b.glsl"
#include "common/other.glsl"

const uint kColumns = kMatvecColumns;
const uint kSums = kRows * kColumns;
// numbers in 16 bytes of B
const uint kNumbers = kPacked == kPackedF32 ? 4 : kPacked == kPackedInt8 ? 16 : kPacked == kPackedInt4 ? 32 : 8;

// The parts of the sums: each subgroup's, which has kMatvecLeastSubgroup invocations or more, where
// kSubgroups, else each invocation's.
shared float partials[kSubgroups != 0 ? gl_WorkGroupSize.x / kMatvecLeastSubgroup * kSums : gl_WorkGroupSize.x * kSums];

// Codes of int4 keep their places within 16 bits, which saves shifts: the n-th is 16^n too large,
// which the numbers of A make up for.
const vec4 kPlaces = vec4(1.0, 0.0625, 0.00390625, 0.000244140625);

// Four weights of 16 bytes of a column, those of int8 and int4 without scale, and those of int4
// times what their places make of them; `zero` as zeros() gives it.
vec4 weights(uvec4 words, uint four, vec4 zero) {
    if (kPacked == kPackedInt4) {
        uint codes = four % 2 == 0 ? words[four / 2] : words[four / 2] >> 16;
        return uintBitsToFloat((codes & uvec4(0xF, 0xF0, 0xF00, 0xF000)) | kWholeBits) - zero;
    }
    return unpack_four(kPacked, words, four);
}

// The zero point of a group of int4 in each of four places.
vec4 zeros(uint scale) {
    return uintBitsToFloat((uvec4(scale & 15) << uvec4(0, 4, 8, 12)) | kWholeBits);
}

float plus_products(float sum, vec4 w, vec4 values) {
    return w.w * values.w + (w.z * values.z + (w.y * values.y + (w.x * values.x + sum)));
}

// Adds the products of four numbers of each row of A, the fours at rows[] + at, with four of 16
// bytes of each column.
void add_products(inout float to[kSums], uvec4 words[kColumns], vec4 zero[kColumns], uint rows[kRows], uint at,
                  uint four) {
    [[unroll]] for (uint i = 0; i < kRows; ++i) {
        vec4 values = a_vec[rows[i] + at];
        if (kPacked == kPackedInt4) {
            values *= kPlaces;
        }
        [[unroll]] for (uint j = 0; j < kColumns; ++j) {
            vec4 w = weights(words[j], four, zero[j]);
            to[i * kColumns + j] = plus_products(to[i * kColumns + j], w, values);
        }
    }
}

void main() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return;
    }
    uint m0 = take_dimension(rest, tiles_over(p.m, kRows)) * kRows;
    uint n0 = take_dimension(rest, tiles_over(p.n, kColumns)) * kColumns;
    ProductBases base = product_bases(rest);

    uint lane = gl_LocalInvocationID.x;
    uint rows[kRows];
    [[unroll]] for (uint i = 0; i < kRows; ++i) {
        rows[i] = (base.a + min(m0 + i, p.m - 1) * p.a_row) >> 2;
    }
    uint columns[kColumns];
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        columns[j] = base.b + min(n0 + j, p.n - 1) * p.b_column;
    }
    float sums[kSums];
    [[unroll]] for (uint i = 0; i < kSums; ++i) {
        sums[i] = 0.0;
    }
    for (uint k = lane * kNumbers; k < p.k; k += gl_WorkGroupSize.x * kNumbers) {
        uvec4 words[kColumns];
        float scales[kColumns];
        vec4 zero[kColumns];
        [[unroll]] for (uint j = 0; j < kColumns; ++j) {
            words[j] = b_quads[(columns[j] >> 2) + k / kNumbers];
        }
        [[unroll]] for (uint j = 0; j < kColumns; ++j) {
            if (kPacked == kPackedInt4) {
                uint scale = b_words[columns[j] + packed_code_words(kPackedInt4, p.k) + k / kNumbers];
                scales[j] = group_scale(scale);
                zero[j] = zeros(scale);
            }
        }
        if (kPacked != kPackedInt4) {
            [[unroll]] for (uint four = 0; four < kNumbers / 4; ++four) {
                add_products(sums, words, zero, rows, k / 4 + four, four);
            }
            continue;
        }
        float group[kSums];
        [[unroll]] for (uint i = 0; i < kSums; ++i) {
            group[i] = 0.0;
        }
        if (kRows > 2) {
            // Unrolled, all numbers of A would be loaded at once: too many for registers.
            [[dont_unroll]] for (uint word = 0; word < 4; ++word) {
                add_products(group, words, zero, rows, k / 4 + 2 * word, 0);
                add_products(group, words, zero, rows, k / 4 + 2 * word + 1, 1);
                [[unroll]] for (uint j = 0; j < kColumns; ++j) {
                    words[j] = words[j].yzwx;
                }
            }
        } else {
            [[unroll]] for (uint four = 0; four < kNumbers / 4; ++four) {
                add_products(group, words, zero, rows, k / 4 + four, four);
            }
        }
        [[unroll]] for (uint i = 0; i < kSums; ++i) {
            sums[i] += group[i] * scales[i % kColumns];
        }
    }

    // The sum of output `lane`, in a fixed order.
    float sum = 0.0;
    if (kSubgroups != 0) {
        [[unroll]] for (uint i = 0; i < kSums; ++i) {
            sums[i] = subgroupAdd(sums[i]);
        }
        if (subgroupElect()) {
            [[unroll]] for (uint i = 0; i < kSums; ++i) {
                partials[gl_SubgroupID * kSums + i] = sums[i];
            }
        }
        barrier();
        if (lane >= kSums) {
            return;
        }
        for (uint i = 0; i < gl_NumSubgroups; ++i) {
            sum += partials[i * kSums + lane];
        }
    } else {
        [[unroll]] for (uint i = 0; i < kSums; ++i) {
            partials[i * gl_WorkGroupSize.x + lane] = sums[i];
        }
        barrier();
        // kShare invocations for each output
        const uint kShare = gl_WorkGroupSize.x / kSums;
        uint first = lane / kShare * gl_WorkGroupSize.x + lane % kShare;
        for (uint i = 0; i < kSums; ++i) {
            sum += partials[first + i * kShare];
        }
        barrier();
        partials[lane] = sum;
        barrier();
        if (lane >= kSums) {
            return;
        }
        sum = 0.0;
        for (uint i = 0; i < kShare; ++i) {
            sum += partials[lane * kShare + i];
        }
    }
    uint m = m0 + lane / kColumns;
    uint n = n0 + lane % kColumns;
    if (m < p.m && n < p.n) {
        float shift = p.has_bias != 0 ? bias[p.bias_offset + n * p.bias_stride] : 0.0;
        sum = sum * column_scale(base.b + n * p.b_column) * p.alpha + shift;
        uint to = base.c + m * p.c_row + n * p.c_column;
        c[to] = with_other(activate(kAct, sum), to);
    }
}
