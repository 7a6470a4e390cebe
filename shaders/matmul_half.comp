#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product in f16 arithmetic, for GPUs that have it and no cooperative matrices: A and B are
// rounded to f16 (to the nearest, ties to even) while they are staged in shared memory. The tiles
// are those of matmul_shared.comp with words in the place of numbers, two numbers along k a word:
// kTileDepth counts words. A word's products are multiplied and summed in f16, both halves at once,
// through kMatmulHalfRun words; what came together then is added to sums in fp32.
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

layout(set = 0, binding = kMatmulBindingA) readonly buffer A { float a[]; };
layout(set = 0, binding = kMatmulBindingA) readonly buffer AVec { vec4 a_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer B { float b[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BVec { vec4 b_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BWords { uint b_words[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BPairs { uvec2 b_pairs[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer BiasVec { vec4 bias_vec[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer C { float c[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer CVec { vec4 c_vec[]; };

layout(push_constant) uniform Push { MatmulPush p; };

// Codes of int8 are staged as numbers up to 1, lest 127 times as much pass what f16 can hold.
const float kCode = 0.0078125;

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/packed_b.glsl"
#include "common/halves.glsl"
#include "common/other.glsl"
#include "common/quads.glsl"

const uint kRowQuads = kTileRows / 4;
const uint kColumnQuads = kTileColumns / 4;
const uint kDepthPairs = kTileDepth / 2;
const uint kRowPitch = kRowQuads + 1;
const uint kColumnPitch = kColumnQuads + 1;
const uint kThreads = kRowQuads * kColumnQuads;

// A uvec4 of padding for each word along k, as in matmul_shared.comp.
shared uvec4 a_tile[kTileDepth * kRowPitch];
shared uvec4 b_tile[kTileDepth * kColumnPitch];

void stage_a(uint a_base, uint m0, uint k0) {
    for (uint i = gl_LocalInvocationID.x; i < kTileRows * kDepthPairs; i += kThreads) {
        uint row = i / kDepthPairs;
        uint depth = (i - row * kDepthPairs) * 2;
        uvec2 words = four_of_a(a_base + min(m0 + row, p.m - 1) * p.a_row, k0 + depth * 2);
        a_tile[depth * kRowPitch + row / 4][row % 4] = words.x;
        a_tile[(depth + 1) * kRowPitch + row / 4][row % 4] = words.y;
    }
}

void stage_b_along_k(uint b_base, uint n0, uint k0) {
    for (uint i = gl_LocalInvocationID.x; i < kTileColumns * kDepthPairs; i += kThreads) {
        uint column = i / kDepthPairs;
        uint depth = (i - column * kDepthPairs) * 2;
        uvec2 words = four_along_k(b_base + min(n0 + column, p.n - 1) * p.b_column, k0 + depth * 2);
        b_tile[depth * kColumnPitch + column / 4][column % 4] = words.x;
        b_tile[(depth + 1) * kColumnPitch + column / 4][column % 4] = words.y;
    }
}

void stage_b_along_n(uint b_base, uint n0, uint k0) {
    for (uint i = gl_LocalInvocationID.x; i < kTileDepth * kColumnQuads; i += kThreads) {
        uint depth = i / kColumnQuads;
        uint quad = i - depth * kColumnQuads;
        uint n = n0 + quad * 4;
        uint k = k0 + depth * 2;
        uint at = b_base + k * p.b_k;
        uvec2 low = k < p.k ? four_along_n(at, n) : uvec2(0);
        uvec2 high = k + 1 < p.k ? four_along_n(at + p.b_k, n) : uvec2(0);
        b_tile[depth * kColumnPitch + quad] =
            uvec4((low.x & 0xffff) | (high.x << 16), (low.x >> 16) | (high.x & 0xffff0000),
                  (low.y & 0xffff) | (high.y << 16), (low.y >> 16) | (high.y & 0xffff0000));
    }
}

void main() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return;
    }
    uint m0 = take_dimension(rest, tiles_over(p.m, kTileRows)) * kTileRows;
    uint n0 = take_dimension(rest, tiles_over(p.n, kTileColumns)) * kTileColumns;
    uvec3 batch;
    batch.z = take_dimension(rest, p.batch2);
    batch.y = take_dimension(rest, p.batch1);
    batch.x = rest;
    uint a_base = p.a_offset + batch.x * p.a_batch[0] + batch.y * p.a_batch[1] + batch.z * p.a_batch[2];
    uint b_base = p.b_offset + batch.x * p.b_batch[0] + batch.y * p.b_batch[1] + batch.z * p.b_batch[2];
    uint c_base = p.c_offset + batch.x * p.c_batch[0] + batch.y * p.c_batch[1] + batch.z * p.c_batch[2];
    uint row_quad = quad_row(gl_LocalInvocationID.x, kTileColumns) / 4;
    uint column_quad = quad_column(gl_LocalInvocationID.x, kTileColumns) / 4;

    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (uint k0 = 0; k0 < p.k; k0 += kTileDepth * 2) {
        stage_a(a_base, m0, k0);
        if (kBLoad == kMatmulBVecK || kPacked != kPackedF32) {
            stage_b_along_k(b_base, n0, k0);
        } else {
            stage_b_along_n(b_base, n0, k0);
        }
        barrier();
        for (uint first = 0; first < kTileDepth; first += kMatmulHalfRun) {
            f16vec2 run[16];
            [[unroll]] for (uint i = 0; i < 16; ++i) {
                run[i] = f16vec2(0.0);
            }
            [[unroll]] for (uint depth = 0; depth < kMatmulHalfRun; ++depth) {
                uvec4 rows = a_tile[(first + depth) * kRowPitch + row_quad];
                uvec4 columns = b_tile[(first + depth) * kColumnPitch + column_quad];
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

    uint m = m0 + row_quad * 4;
    uint n = n0 + column_quad * 4;
    if (kPacked == kPackedInt8) {
        vec4 scales;
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            scales[j] = column_scale(b_base + min(n + j, p.n - 1) * p.b_column) / kCode;
        }
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            sums[i] *= scales;
        }
    }
    vec4 shift = biases(n);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        store_quad(sums[i], shift, m + i, n, c_base);
    }
}
