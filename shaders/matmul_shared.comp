#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product with tiles in shared memory, for GPUs: a group computes kTileRows by kTileColumns
// outputs, each invocation 4x4 of them, and walks along k in steps of kTileDepth. Both tiles are
// kept with k outermost, so that an invocation reads the four rows and the four columns it needs at
// one k as one vec4 each; a vec4 of padding per k keeps the transposing stores off a single bank.
//
// Rows and columns past the end repeat the last one and are not stored. Past the end of k both
// operands are 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "matmul.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecALoad) const uint kALoad = kMatmulAScalar;
layout(constant_id = kMatmulSpecBLoad) const uint kBLoad = kMatmulBScalar;
layout(constant_id = kMatmulSpecCVec) const uint kCVec = 0;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecAMasked) const uint kAMasked = 0;
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

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/packed_b.glsl"
#include "common/other.glsl"
#include "common/quads.glsl"

const uint kRowQuads = kTileRows / 4;
const uint kColumnQuads = kTileColumns / 4;
const uint kDepthQuads = kTileDepth / 4;
const uint kRowPitch = kRowQuads + 1;
const uint kColumnPitch = kColumnQuads + 1;
const uint kThreads = kRowQuads * kColumnQuads;

shared vec4 a_tile[kTileDepth * kRowPitch];
shared vec4 b_tile[kTileDepth * kColumnPitch];
// kAMasked: B held something that is not finite, so the group's sums must be taken again with care.
shared uint wild;

// Takes what is not finite out of B, lest 0 * inf enter a sum it has no part in.
vec4 tame(vec4 values) {
    if (kAMasked == 0) {
        return values;
    }
    bvec4 untamed = equal(floatBitsToUint(values) & kInfinityBits, uvec4(kInfinityBits));
    if (any(untamed)) {
        atomicOr(wild, 1);
    }
    return mix(values, vec4(0.0), untamed);
}

void stage_a(uint a_base, uint m0, uint k0) {
    if (kALoad == kMatmulAVecM) {
        for (uint i = gl_LocalInvocationID.x; i < kTileDepth * kRowQuads; i += kThreads) {
            uint depth = i / kRowQuads;
            uint quad = i - depth * kRowQuads;
            uint k = k0 + depth;
            vec4 values = vec4(0.0);
            if (k < p.k) {
                values = a_vec[(a_base + k * p.a_k + min(m0 + quad * 4, p.m - 4)) >> 2];
            }
            a_tile[depth * kRowPitch + quad] = values;
        }
        return;
    }
    for (uint i = gl_LocalInvocationID.x; i < kTileRows * kDepthQuads; i += kThreads) {
        uint row = i / kDepthQuads;
        uint depth = (i - row * kDepthQuads) * 4;
        uint k = k0 + depth;
        uint at = a_base + min(m0 + row, p.m - 1) * p.a_row;
        vec4 values = vec4(0.0);
        if (kALoad == kMatmulAVecK) {
            if (k < p.k) {
                values = a_vec[(at + k) >> 2];
            }
        } else {
            for (uint j = 0; j < 4 && k + j < p.k; ++j) {
                values[j] = a[at + (k + j) * p.a_k];
            }
        }
        for (uint j = 0; j < 4; ++j) {
            a_tile[(depth + j) * kRowPitch + row / 4][row % 4] = values[j];
        }
    }
}

void stage_b(uint b_base, uint n0, uint k0) {
    for (uint i = gl_LocalInvocationID.x; i < kTileColumns * kDepthQuads; i += kThreads) {
        if (kBLoad == kMatmulBVecK || kPacked != kPackedF32) {
            uint column = i / kDepthQuads;
            uint depth = (i - column * kDepthQuads) * 4;
            uint k = k0 + depth;
            vec4 values = vec4(0.0);
            if (k < p.k) {
                uint row = b_base + min(n0 + column, p.n - 1) * p.b_column;
                values = kPacked != kPackedF32 ? load_packed(row, k) : tame(b_vec[(row + k) >> 2]);
            }
            for (uint j = 0; j < 4; ++j) {
                b_tile[(depth + j) * kColumnPitch + column / 4][column % 4] = values[j];
            }
        } else {
            uint depth = i / kColumnQuads;
            uint quad = i - depth * kColumnQuads;
            uint n = n0 + quad * 4;
            uint k = k0 + depth;
            vec4 values = vec4(0.0);
            if (k < p.k) {
                uint at = b_base + k * p.b_k;
                if (kBLoad == kMatmulBVecN) {
                    values = tame(b_vec[(at + min(n, p.n - 4)) >> 2]);
                } else {
                    uvec4 columns = at + min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1)) * p.b_column;
                    values = tame(vec4(b[columns.x], b[columns.y], b[columns.z], b[columns.w]));
                }
            }
            b_tile[depth * kColumnPitch + quad] = values;
        }
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

    if (kAMasked != 0) {
        if (gl_LocalInvocationID.x == 0) {
            wild = 0;
        }
        barrier();
    }
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (uint k0 = 0; k0 < p.k; k0 += kTileDepth) {
        stage_a(a_base, m0, k0);
        stage_b(b_base, n0, k0);
        barrier();
        for (uint depth = 0; depth < kTileDepth; ++depth) {
            vec4 column = a_tile[depth * kRowPitch + row_quad];
            vec4 row = b_tile[depth * kColumnPitch + column_quad];
            sums[0] += column.x * row;
            sums[1] += column.y * row;
            sums[2] += column.z * row;
            sums[3] += column.w * row;
        }
        barrier();
    }

    uint m = m0 + row_quad * 4;
    uint n = n0 + column_quad * 4;
    // Where B was not finite, the outputs are computed once more and each product of an absent
    // element is left out.
    if (kAMasked != 0 && wild != 0) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uint a_row = a_base + min(m + i, p.m - 1) * p.a_row;
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                uint b_column = b_base + min(n + j, p.n - 1) * p.b_column;
                float sum = 0.0;
                for (uint k = 0; k < p.k; ++k) {
                    float weight = a[a_row + k * p.a_k];
                    float product = weight * b[b_column + k * p.b_k];
                    sum += floatBitsToUint(weight) == kSignBit ? 0.0 : product;
                }
                sums[i][j] = sum;
            }
        }
    }
    if (kPacked == kPackedInt8) {
        vec4 scales;
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            scales[j] = column_scale(b_base + min(n + j, p.n - 1) * p.b_column);
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
