#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product with tiles in shared memory, for GPUs: a group computes kTileRows by kTileColumns
// outputs, and walks along k in steps of kTileDepth. An invocation computes 4x4 of them; or with
// half as many invocations 8x4, so that what it reads of B serves two quads of rows; or in tiles of
// 128 columns 8x8, where what it reads of A serves two quads of columns too. How tiles lie is told
// in common/shared_tiles.glsl. The next step's numbers are fetched into registers while this step's
// are multiplied.
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

#include "common/product_buffers.glsl"

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/product.glsl"
#include "common/packed_b.glsl"
#include "common/other.glsl"
#include "common/quads.glsl"
#define TILE_NUMBER float
#define TILE_FOUR vec4
#include "common/shared_tiles.glsl"

// kAMasked: B held something that is not finite, so the group's sums must be taken again with care.
shared uint some_not_finite;

// Takes what is not finite out of B, lest 0 * inf enter a sum it has no part in.
vec4 finite_b(vec4 values) {
    if (kAMasked == 0) {
        return values;
    }
    bvec4 lost = not_finite(values);
    if (any(lost)) {
        atomicOr(some_not_finite, 1);
    }
    return mix(values, vec4(0.0), lost);
}

vec4 fetch_a(uint i, uint a_base, uint m0, uint k0) {
    if (kALoad == kMatmulAVecM) {
        uint k = k0 + line_of(i, kRowQuads);
        uint row = min(m0 + item_of(i, kRowQuads) * 4, p.m - 4);
        return k < p.k ? a_vec[(a_base + k * p.a_k + row) >> 2] : vec4(0.0);
    }
    uint k = k0 + item_of(i, kDepthQuads) * 4;
    uint at = a_base + min(m0 + line_of(i, kDepthQuads), p.m - 1) * p.a_row;
    if (kALoad == kMatmulAVecK) {
        return k < p.k ? a_vec[(at + k) >> 2] : vec4(0.0);
    }
    vec4 values = vec4(0.0);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (k + j < p.k) {
            values[j] = a[at + (k + j) * p.a_k];
        }
    }
    return values;
}

void stage_a(uint i, vec4 values) {
    if (kALoad == kMatmulAVecM) {
        stage_a_across_k(i, values);
    } else {
        stage_a_along_k(i, values);
    }
}

const bool kBAlongK = kBLoad == kMatmulBVecK || kPacked != kPackedF32;

vec4 fetch_b(uint i, uint b_base, uint n0, uint k0) {
    if (kBAlongK) {
        uint k = k0 + item_of(i, kDepthQuads) * 4;
        uint row = b_base + min(n0 + line_of(i, kDepthQuads), p.n - 1) * p.b_column;
        if (k >= p.k) {
            return vec4(0.0);
        }
        return kPacked != kPackedF32 ? load_packed(row, k) : b_vec[(row + k) >> 2];
    }
    uint k = k0 + line_of(i, kColumnQuads);
    uint n = n0 + item_of(i, kColumnQuads) * 4;
    if (k >= p.k) {
        return vec4(0.0);
    }
    uint at = b_base + k * p.b_k;
    if (kBLoad == kMatmulBVecN) {
        return b_vec[(at + min(n, p.n - 4)) >> 2];
    }
    uvec4 columns = at + min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1)) * p.b_column;
    return vec4(b[columns.x], b[columns.y], b[columns.z], b[columns.w]);
}

void stage_b(uint i, vec4 values) {
    if (kBAlongK) {
        stage_b_along_k(i, kPacked != kPackedF32 ? values : finite_b(values));
    } else {
        stage_b_across_k(i, finite_b(values));
    }
}

// Four outputs once more, where B was not finite: each product of an absent element of A is left
// out.
vec4 sums_of_present(uint a_row, uint b_base, uint n) {
    vec4 sums;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        uint b_column = b_base + min(n + j, p.n - 1) * p.b_column;
        float sum = 0.0;
        for (uint k = 0; k < p.k; ++k) {
            float weight = a[a_row + k * p.a_k];
            float value = b[b_column + k * p.b_k];
            // In the form of the sums above, so that compilers contract both or neither: where all
            // that is seen is finite, no bit differs from what a finite B would give.
            sum += weight * (floatBitsToUint(weight) == kSignBit ? 0.0 : value);
        }
        sums[j] = sum;
    }
    return sums;
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
    uint row_quad = quad_row(gl_LocalInvocationID.x, kTileColumns / kAcross) / 4;
    uint column_quad = quad_column(gl_LocalInvocationID.x, kTileColumns / kAcross) / 4;

    if (kAMasked != 0) {
        if (gl_LocalInvocationID.x == 0) {
            some_not_finite = 0;
        }
        barrier();
    }
    vec4 next_a[kFetchA];
    vec4 next_b[kFetchB];
    [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
        next_a[i] = fetch_a(i, base.a, m0, 0);
    }
    [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
        next_b[i] = fetch_b(i, base.b, n0, 0);
    }
    vec4 sums[kQuads * kAcross * 4];
    [[unroll]] for (uint i = 0; i < kQuads * kAcross * 4; ++i) {
        sums[i] = vec4(0.0);
    }
    for (uint k0 = 0; k0 < p.k; k0 += kTileDepth) {
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            if (has_item(i, kFoursOfA)) {
                stage_a(i, next_a[i]);
            }
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            if (has_item(i, kFoursOfB)) {
                stage_b(i, next_b[i]);
            }
        }
        barrier();
        [[unroll]] for (uint i = 0; i < kFetchA; ++i) {
            next_a[i] = fetch_a(i, base.a, m0, k0 + kTileDepth);
        }
        [[unroll]] for (uint i = 0; i < kFetchB; ++i) {
            next_b[i] = fetch_b(i, base.b, n0, k0 + kTileDepth);
        }
        for (uint depth = 0; depth < kTileDepth; ++depth) {
            vec4 rows[kAcross];
            [[unroll]] for (uint j = 0; j < kAcross; ++j) {
                rows[j] = b_quad(depth * kColumnPitch + column_quad + j * kAcrossStride);
            }
            [[unroll]] for (uint i = 0; i < kQuads; ++i) {
                vec4 column = a_quad(depth * kRowPitch + row_quad + i * kQuadStride);
                [[unroll]] for (uint j = 0; j < kAcross; ++j) {
                    uint at = (i * kAcross + j) * 4;
                    sums[at] += column.x * rows[j];
                    sums[at + 1] += column.y * rows[j];
                    sums[at + 2] += column.z * rows[j];
                    sums[at + 3] += column.w * rows[j];
                }
            }
        }
        barrier();
    }

    [[unroll]] for (uint j = 0; j < kAcross; ++j) {
        uint n = n0 + (column_quad + j * kAcrossStride) * 4;
        vec4 scales = vec4(1.0);
        if (kPacked == kPackedInt8) {
            [[unroll]] for (uint column = 0; column < 4; ++column) {
                scales[column] = column_scale(base.b + min(n + column, p.n - 1) * p.b_column);
            }
        }
        vec4 shift = biases(n);
        [[unroll]] for (uint quad = 0; quad < kQuads; ++quad) {
            uint m = m0 + (row_quad + quad * kQuadStride) * 4;
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                vec4 sum = sums[(quad * kAcross + j) * 4 + i];
                if (kAMasked != 0 && some_not_finite != 0) {
                    sum = sums_of_present(base.a + min(m + i, p.m - 1) * p.a_row, base.b, n);
                }
                store_quad(kPacked == kPackedInt8 ? sum * scales : sum, shift, m + i, n, base.c);
            }
        }
    }
}
