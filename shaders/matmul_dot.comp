#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product of int8 codes by integer dot products, for GPUs: the rows of A, and the columns of
// B, are rows of common/packed.h in int8, four codes a word. The tiles are those of
// matmul_shared.comp with words in the place of numbers: kTileDepth counts words. Sums of codes are
// exact; each is then multiplied by the scales of its row and its column.
//
// Rows and columns past the end repeat the last one and are not stored. Past the end of k both
// operands are 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require

#include "matmul.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecCVec) const uint kCVec = 0;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;
layout(constant_id = kMatmulSpecTileRows) const uint kTileRows = 64;
layout(constant_id = kMatmulSpecTileColumns) const uint kTileColumns = 64;
layout(constant_id = kMatmulSpecTileDepth) const uint kTileDepth = 8;

layout(set = 0, binding = kMatmulBindingA) readonly buffer A { uint a_words[]; };
layout(set = 0, binding = kMatmulBindingA) readonly buffer AVec { uvec4 a_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer B { uint b_words[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BVec { uvec4 b_vec[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer BiasVec { vec4 bias_vec[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer C { float c[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer CVec { vec4 c_vec[]; };

layout(push_constant) uniform Push { MatmulPush p; };

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/other.glsl"
#include "common/quads.glsl"

// OpSDotKHR of four signed 8-bit numbers a word (capabilities DotProduct and
// DotProductInput4x8BitPacked), packed vector format 0.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_of_codes(uint a, uint b, spirv_literal int format);

const uint kThreads = gl_WorkGroupSize.x;
const uint kRowQuads = kTileRows / 4;
const uint kColumnQuads = kTileColumns / 4;
const uint kDepthQuads = kTileDepth / 4;
const uint kRowPitch = kRowQuads + 1;
const uint kColumnPitch = kColumnQuads + 1;
// As in matmul_shared.comp: quads of rows of an invocation, so far apart; uvec4 that it fetches.
const uint kQuads = kRowQuads * kColumnQuads / kThreads;
const uint kQuadStride = kRowQuads / kQuads;
const uint kFetchA = (kTileRows * kDepthQuads + kThreads - 1) / kThreads;
const uint kFetchB = (kTileColumns * kDepthQuads + kThreads - 1) / kThreads;

// Four words of padding for each along k, as in matmul_shared.comp.
shared uint a_tile[kTileDepth * kRowPitch * 4];
shared uint b_tile[kTileDepth * kColumnPitch * 4];

uvec4 a_quad(uint quad) {
    return uvec4(a_tile[quad * 4], a_tile[quad * 4 + 1], a_tile[quad * 4 + 2], a_tile[quad * 4 + 3]);
}
uvec4 b_quad(uint quad) {
    return uvec4(b_tile[quad * 4], b_tile[quad * 4 + 1], b_tile[quad * 4 + 2], b_tile[quad * 4 + 3]);
}

// The words of a row's codes, in front of its scale.
uint code_words() {
    return p.k / 4;
}

// Item i of the invocation's part of a tile: the row or column, and the words of it.
uint line_of(uint i) {
    return (gl_LocalInvocationID.x + i * kThreads) / kDepthQuads;
}
uint depth_of(uint i) {
    return (gl_LocalInvocationID.x + i * kThreads) % kDepthQuads * 4;
}

// What lies behind the end of a tile is fetched as others are, and not staged.
bool has_item(uint i, uint lines) {
    return lines * kDepthQuads % kThreads == 0 || gl_LocalInvocationID.x + i * kThreads < lines * kDepthQuads;
}

uvec4 fetch_a(uint i, uint base, uint m0, uint word0) {
    uint word = word0 + depth_of(i);
    return word < code_words() ? a_vec[(base + min(m0 + line_of(i), p.m - 1) * p.a_row + word) >> 2] : uvec4(0);
}

uvec4 fetch_b(uint i, uint base, uint n0, uint word0) {
    uint word = word0 + depth_of(i);
    return word < code_words() ? b_vec[(base + min(n0 + line_of(i), p.n - 1) * p.b_column + word) >> 2] : uvec4(0);
}

ivec4 dots(uint row, uvec4 columns) {
    return ivec4(dot_of_codes(row, columns.x, 0), dot_of_codes(row, columns.y, 0), dot_of_codes(row, columns.z, 0),
                 dot_of_codes(row, columns.w, 0));
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

    uvec4 next_a[kFetchA];
    uvec4 next_b[kFetchB];
    [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
        next_a[i] = fetch_a(i, a_base, m0, 0);
    }
    [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
        next_b[i] = fetch_b(i, b_base, n0, 0);
    }
    ivec4 sums[kQuads * 4];
    [[unroll]] for (uint i = 0; i < kQuads * 4; ++i) {
        sums[i] = ivec4(0);
    }
    for (uint word0 = 0; word0 < code_words(); word0 += kTileDepth) {
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            if (has_item(i, kTileRows)) {
                [[unroll]] for (uint j = 0; j < 4; ++j) {
                    a_tile[(depth_of(i) + j) * kRowPitch * 4 + line_of(i)] = next_a[i][j];
                }
            }
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            if (has_item(i, kTileColumns)) {
                [[unroll]] for (uint j = 0; j < 4; ++j) {
                    b_tile[(depth_of(i) + j) * kColumnPitch * 4 + line_of(i)] = next_b[i][j];
                }
            }
        }
        barrier();
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            next_a[i] = fetch_a(i, a_base, m0, word0 + kTileDepth);
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            next_b[i] = fetch_b(i, b_base, n0, word0 + kTileDepth);
        }
        for (uint depth = 0; depth < kTileDepth; ++depth) {
            uvec4 columns = b_quad(depth * kColumnPitch + column_quad);
            [[unroll]] for (uint i = 0; i < kQuads; ++i) {
                uvec4 rows = a_quad(depth * kRowPitch + row_quad + i * kQuadStride);
                sums[i * 4] += dots(rows.x, columns);
                sums[i * 4 + 1] += dots(rows.y, columns);
                sums[i * 4 + 2] += dots(rows.z, columns);
                sums[i * 4 + 3] += dots(rows.w, columns);
            }
        }
        barrier();
    }

    uint n = n0 + column_quad * 4;
    vec4 scales;  // scales of the columns; a row's scale lies behind its codes
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        scales[j] = uintBitsToFloat(b_words[b_base + min(n + j, p.n - 1) * p.b_column + code_words()]);
    }
    vec4 shift = biases(n);
    [[unroll]] for (uint quad = 0; quad < kQuads; ++quad) {
        uint m = m0 + (row_quad + quad * kQuadStride) * 4;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            float scale = uintBitsToFloat(a_words[a_base + min(m + i, p.m - 1) * p.a_row + code_words()]);
            store_quad(vec4(sums[quad * 4 + i]) * scale * scales, shift, m + i, n, c_base);
        }
    }
}
