#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product of int8 codes by integer dot products, for GPUs: the rows of A, and the columns of
// B, are rows of common/packed.h in int8, four codes a word. The tiles
// (common/shared_tiles.glsl) hold words, and kTileDepth counts words. Sums of codes are exact; each
// is then multiplied by the scales of its row and its column.
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
#include "common/product.glsl"
#include "common/other.glsl"
#include "common/quads.glsl"
#define TILE_NUMBER uint
#define TILE_FOUR uvec4
#include "common/shared_tiles.glsl"

// OpSDotKHR of four signed 8-bit numbers a word (capabilities DotProduct and
// DotProductInput4x8BitPacked), packed vector format 0.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_of_codes(uint a, uint b, spirv_literal int format);

// The words of a row's codes, in front of its scale.
uint code_words() {
    return p.k / 4;
}

uvec4 fetch_a(uint i, uint base, uint m0, uint word0) {
    uint word = word0 + item_of(i, kDepthQuads) * 4;
    return word < code_words()
               ? a_vec[(base + min(m0 + line_of(i, kDepthQuads), p.m - 1) * p.a_row + word) >> 2]
               : uvec4(0);
}

uvec4 fetch_b(uint i, uint base, uint n0, uint word0) {
    uint word = word0 + item_of(i, kDepthQuads) * 4;
    return word < code_words()
               ? b_vec[(base + min(n0 + line_of(i, kDepthQuads), p.n - 1) * p.b_column + word) >> 2]
               : uvec4(0);
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
    ProductBases base = product_bases(rest);
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
    ivec4 sums[kQuads * 4];
    [[unroll]] for (uint i = 0; i < kQuads * 4; ++i) {
        sums[i] = ivec4(0);
    }
    for (uint word0 = 0; word0 < code_words(); word0 += kTileDepth) {
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            if (has_item(i, kFoursOfA)) {
                stage_a_along_k(i, next_a[i]);
            }
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            if (has_item(i, kFoursOfB)) {
                stage_b_along_k(i, next_b[i]);
            }
        }
        barrier();
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            next_a[i] = fetch_a(i, base.a, m0, word0 + kTileDepth);
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            next_b[i] = fetch_b(i, base.b, n0, word0 + kTileDepth);
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
        scales[j] = uintBitsToFloat(b_words[base.b + min(n + j, p.n - 1) * p.b_column + code_words()]);
    }
    vec4 shift = biases(n);
    [[unroll]] for (uint quad = 0; quad < kQuads; ++quad) {
        uint m = m0 + (row_quad + quad * kQuadStride) * 4;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            float scale = uintBitsToFloat(a_words[base.a + min(m + i, p.m - 1) * p.a_row + code_words()]);
            store_quad(vec4(sums[quad * 4 + i]) * scale * scales, shift, m + i, n, base.c);
        }
    }
}
