#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product for few rows of A (1 to 4 per group), for GPUs: what is read of B is read once and
// never again, so the work is to read it in order. kSplit neighbouring invocations share one
// column's sum, taking its k in turn, and add up in shared memory; a group computes local size /
// kSplit columns. For weights stored (n, k) a split of 16 to 64 reads them in order; for B stored
// (k, n) a split of 1 does. CVec and the tile constants do not apply, and kMatmulBVecN reads like
// kMatmulBScalar.
//
// Rows and columns past the end repeat the last one and are not stored.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "matmul.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecRows) const uint kRows = 1;
layout(constant_id = kMatmulSpecALoad) const uint kALoad = kMatmulAScalar;
layout(constant_id = kMatmulSpecBLoad) const uint kBLoad = kMatmulBScalar;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecAMasked) const uint kAMasked = 0;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;
layout(constant_id = kMatmulSpecSplit) const uint kSplit = 32;

#include "common/product_buffers.glsl"

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/product.glsl"
#include "common/packed_b.glsl"
#include "common/other.glsl"

// Sums of the group's columns so far, a row per component.
shared vec4 partials[gl_WorkGroupSize.x];

float product(float weight, float value) {
    bool absent = kAMasked != 0 && floatBitsToUint(weight) == kSignBit;
    return absent ? 0.0 : weight * value;
}

float dot_product(vec4 weights, vec4 values) {
    return (product(weights.x, values.x) + product(weights.y, values.y)) +
           (product(weights.z, values.z) + product(weights.w, values.w));
}

vec4 load_a(uint row, uint k) {
    if (kALoad == kMatmulAVecK) {
        return a_vec[(row + k) >> 2];
    }
    uint at = row + k * p.a_k;
    if (kPacked != kPackedF32) {  // whose p.k need not be a multiple of 4
        vec4 values = vec4(0.0);
        for (uint j = 0; j < 4 && k + j < p.k; ++j) {
            values[j] = a[at + j * p.a_k];
        }
        return values;
    }
    return vec4(a[at], a[at + p.a_k], a[at + 2 * p.a_k], a[at + 3 * p.a_k]);
}

void main() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return;
    }
    uint m0 = take_dimension(rest, tiles_over(p.m, kRows)) * kRows;
    uint tile_columns = gl_WorkGroupSize.x / kSplit;
    uint tile_n = take_dimension(rest, tiles_over(p.n, tile_columns));
    ProductBases base = product_bases(rest);

    uint lane = gl_LocalInvocationID.x;
    uint part = lane % kSplit;
    uint n = split_column(tile_n, gl_WorkGroupSize.x, kSplit, lane);
    uint column = base.b + min(n, p.n - 1) * p.b_column;
    uvec4 rows = base.a + min(m0 + uvec4(0, 1, 2, 3), uvec4(p.m - 1)) * p.a_row;

    vec4 sums = vec4(0.0);
    if (kBLoad == kMatmulBVecK || kPacked != kPackedF32) {
        for (uint k = part * 4; k < p.k; k += kSplit * 4) {
            vec4 values = kPacked != kPackedF32 ? load_packed(column, k) : b_vec[(column + k) >> 2];
            sums.x += dot_product(load_a(rows.x, k), values);
            if (kRows > 1) {
                sums.y += dot_product(load_a(rows.y, k), values);
            }
            if (kRows > 2) {
                sums.z += dot_product(load_a(rows.z, k), values);
            }
            if (kRows > 3) {
                sums.w += dot_product(load_a(rows.w, k), values);
            }
        }
    } else {
        for (uint k = part; k < p.k; k += kSplit) {
            float value = b[column + k * p.b_k];
            uint at = k * p.a_k;
            sums.x += product(a[rows.x + at], value);
            if (kRows > 1) {
                sums.y += product(a[rows.y + at], value);
            }
            if (kRows > 2) {
                sums.z += product(a[rows.z + at], value);
            }
            if (kRows > 3) {
                sums.w += product(a[rows.w + at], value);
            }
        }
    }

    if (kSplit > 1) {
        partials[lane] = sums;
        barrier();
        for (uint stride = kSplit / 2; stride > 0; stride /= 2) {
            if (part < stride) {
                sums += partials[lane + stride];
                partials[lane] = sums;
            }
            barrier();
        }
    }
    if (part == 0 && n < p.n) {
        float shift = p.has_bias != 0 ? bias[p.bias_offset + n * p.bias_stride] : 0.0;
        uint at = base.c + m0 * p.c_row + n * p.c_column;
        sums = sums * column_scale(column) * p.alpha + shift;
        [[dont_unroll]] for (uint i = 0; i < min(kRows, p.m - m0); ++i) {
            float sum = i < 2 ? (i == 0 ? sums.x : sums.y) : (i == 2 ? sums.z : sums.w);
            uint to = at + i * p.c_row;
            c[to] = with_other(activate(kAct, sum), to);
        }
    }
}
