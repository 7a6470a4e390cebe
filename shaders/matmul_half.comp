#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product in f16 arithmetic, for GPUs that have it and no cooperative matrices: A and B are
// rounded to f16 (to the nearest, ties to even) while they are staged in shared memory. The tiles
// (common/shared_tiles.glsl) hold words, two numbers along k each, and kTileDepth counts words. A
// word's products are multiplied and summed in f16, both halves at once, through kMatmulHalfRun
// words; what came together then is added to sums in fp32.
//
// Rows and columns past the end repeat the last one and are not stored. Past the end of k both
// operands are 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require

#include "matmul.h"

// SPIR-V's RoundingModeRTE (capability 4467, mode 4462) for numbers of 16 bits
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 16);

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecALoad) const uint kALoad = kMatmulAScalar;
layout(constant_id = kMatmulSpecBLoad) const uint kBLoad = kMatmulBScalar;
layout(constant_id = kMatmulSpecCVec) const uint kCVec = 0;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;
layout(constant_id = kMatmulSpecTileRows) const uint kTileRows = 64;
layout(constant_id = kMatmulSpecTileColumns) const uint kTileColumns = 64;
layout(constant_id = kMatmulSpecTileDepth) const uint kTileDepth = 16;

#include "common/product_buffers.glsl"

// Codes of int8 are staged as numbers up to 1, lest 127 times as much pass what f16 can hold.
const float kCode = 0.0078125;

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/product.glsl"
#include "common/packed_b.glsl"
#include "common/halves.glsl"
#include "common/other.glsl"
#include "common/quads.glsl"
#define TILE_NUMBER uint
#define TILE_FOUR uvec4
#include "common/shared_tiles.glsl"

// Four words, which are eight numbers along k, of a row of A.
uvec4 fetch_a(uint i, uint a_base, uint m0, uint k0) {
    uint k = k0 + item_of(i, kDepthQuads) * 8;
    uint row = a_base + min(m0 + line_of(i, kDepthQuads), p.m - 1) * p.a_row;
    return uvec4(four_of_a(row, k), four_of_a(row, k + 4));
}

const bool kBAlongK = kBLoad == kMatmulBVecK || kPacked != kPackedF32;

// Four words of a column of B, or one of each of four columns.
uvec4 fetch_b(uint i, uint b_base, uint n0, uint k0) {
    if (kBAlongK) {
        uint k = k0 + item_of(i, kDepthQuads) * 8;
        uint column = b_base + min(n0 + line_of(i, kDepthQuads), p.n - 1) * p.b_column;
        return uvec4(four_along_k(column, k), four_along_k(column, k + 4));
    }
    uint k = k0 + line_of(i, kColumnQuads) * 2;
    uint n = n0 + item_of(i, kColumnQuads) * 4;
    uint at = b_base + k * p.b_k;
    uvec2 low = k < p.k ? four_along_n(at, n) : uvec2(0);
    uvec2 high = k + 1 < p.k ? four_along_n(at + p.b_k, n) : uvec2(0);
    return uvec4((low.x & 0xffff) | (high.x << 16), (low.x >> 16) | (high.x & 0xffff0000),
                 (low.y & 0xffff) | (high.y << 16), (low.y >> 16) | (high.y & 0xffff0000));
}

void stage_b(uint i, uvec4 words) {
    if (kBAlongK) {
        stage_b_along_k(i, words);
    } else {
        stage_b_across_k(i, words);
    }
}

void main() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return;
    }
    uint m0 = take_dimension(rest, tiles_over(p.m, kTileRows)) * kTileRows;
    uint n0 = take_dimension(rest, tiles_over(p.n, kTileColumns)) * kTileColumns;
    ProductBases base = product_bases(rest);
    part_words = base.part;
    uint row_quad = quad_row(gl_LocalInvocationID.x, kTileColumns) / 4;
    uint column_quad = quad_column(gl_LocalInvocationID.x, kTileColumns) / 4;

    uvec4 next_a[kFetchA];
    uvec4 next_b[kFetchB];
    [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
        next_a[i] = fetch_a(i, base.a, m0, 0);
    }
    [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
        next_b[i] = fetch_b(i, base.b, n0, 0);
    }
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (uint k0 = 0; k0 < p.k; k0 += kTileDepth * 2) {
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            if (has_item(i, kFoursOfA)) {
                stage_a_along_k(i, next_a[i]);
            }
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            if (has_item(i, kFoursOfB)) {
                stage_b(i, next_b[i]);
            }
        }
        barrier();
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            next_a[i] = fetch_a(i, base.a, m0, k0 + kTileDepth * 2);
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            next_b[i] = fetch_b(i, base.b, n0, k0 + kTileDepth * 2);
        }
        for (uint first = 0; first < kTileDepth; first += kMatmulHalfRun) {
            f16vec2 run[16];
            [[unroll]] for (uint i = 0; i < 16; ++i) {
                run[i] = f16vec2(0.0);
            }
            [[unroll]] for (uint depth = 0; depth < kMatmulHalfRun; ++depth) {
                uvec4 columns = b_quad((first + depth) * kColumnPitch + column_quad);
                uvec4 rows = a_quad((first + depth) * kRowPitch + row_quad);
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    [[unroll]] for (uint j = 0; j < 4; ++j) {
                        run[i * 4 + j] += unpackFloat2x16(rows[i]) * unpackFloat2x16(columns[j]);
                    }
                }
            }
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                [[unroll]] for (uint j = 0; j < 4; ++j) {
                    vec2 both = vec2(run[i * 4 + j]);
                    sums[i][j] += both.x + both.y;
                }
            }
        }
        barrier();
    }

    uint n = n0 + column_quad * 4;
    vec4 scales = vec4(1.0);
    if (kPacked == kPackedInt8) {
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            scales[j] = column_scale(base.b + min(n + j, p.n - 1) * p.b_column) / kCode;
        }
    }
    vec4 shift = biases(n);
    uint m = m0 + row_quad * 4;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        store_quad(kPacked == kPackedInt8 ? sums[i] * scales : sums[i], shift, m + i, n, base.c);
    }
}
