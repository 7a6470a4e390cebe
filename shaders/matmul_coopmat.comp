#version 450
// SPDX-License-Identifier: Apache-2.0
//! needs GL_KHR_cooperative_matrix
//! variant matmul_coopmat
//! variant matmul_coopmat_int8 -DCODES
//! variant matmul_coopmat_elements -DELEMENTS needs GL_NV_cooperative_matrix2 vulkan1.3
//! variant matmul_coopmat_int8_elements -DCODES -DELEMENTS needs GL_NV_cooperative_matrix2 vulkan1.3
// Matrix product on cooperative matrices. A group computes kTileRows by kTileColumns outputs, each
// of its subgroups kSubgroupRows by kSubgroupColumns of them, and walks along k in steps of
// kTileDepth. What the next step needs is read into registers before this step's products and
// stored after them: with two stages into the other, a barrier a step; with one after a further
// barrier. Where a step reads 128 bytes of each row at once, as lines of caches are, there is no
// room for two.
//
// A and B are rounded to f16 (to the nearest, ties to even) while they are staged in shared memory,
// products are summed in fp32. With CODES they are rows of common/packed.h in int8, as in
// matmul_dot.comp: sums of codes are exact, and multiplied by the scales of their row and column.
//
// Sums leave through shared memory, a strip for each subgroup; with ELEMENTS
// (VK_NV_cooperative_matrix2, of which it takes per-element operations alone) each is finished and
// stored from where it is.
//
// The stage holds numbers by chunks of 16 bytes. A lies row by row with k innermost, and so does B
// where it is read along k; else B lies with n innermost. A chunk of padding per row keeps the
// matrices' rows off the same banks.
//
// Rows and columns past the end repeat the last one and are not stored. Past the end of k both
// operands are 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_cooperative_matrix : require
#ifdef ELEMENTS
#extension GL_NV_cooperative_matrix2 : require
#endif
#ifdef CODES
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#define NUMBER int8_t
#define SUM int
#define BITS uint
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require
#define NUMBER float16_t
#define SUM float
#define BITS floatBitsToUint
#endif

#include "matmul.h"

#ifndef CODES
// SPIR-V's RoundingModeRTE (capability 4467, mode 4462) for numbers of 16 bits
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 16);
#endif

layout(local_size_x_id = 0) in;
#ifndef CODES
layout(constant_id = kMatmulSpecALoad) const uint kALoad = kMatmulAScalar;
layout(constant_id = kMatmulSpecBLoad) const uint kBLoad = kMatmulBScalar;
#endif
layout(constant_id = kMatmulSpecCVec) const uint kCVec = 0;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;
layout(constant_id = kMatmulSpecTileRows) const uint kTileRows = 64;
layout(constant_id = kMatmulSpecTileColumns) const uint kTileColumns = 64;
layout(constant_id = kMatmulSpecTileDepth) const uint kTileDepth = 32;
layout(constant_id = kMatmulSpecMatRows) const uint kMatRows = 16;
layout(constant_id = kMatmulSpecMatColumns) const uint kMatColumns = 16;
layout(constant_id = kMatmulSpecMatDepth) const uint kMatDepth = 16;
layout(constant_id = kMatmulSpecSubgroupRows) const uint kSubgroupRows = 32;
layout(constant_id = kMatmulSpecSubgroupColumns) const uint kSubgroupColumns = 32;
layout(constant_id = kMatmulSpecSubgroup) const uint kSubgroup = 32;
layout(constant_id = kMatmulSpecStages) const uint kStages = 2;

#ifdef CODES
layout(set = 0, binding = kMatmulBindingA) readonly buffer AWords { uint a_words[]; };
layout(set = 0, binding = kMatmulBindingA) readonly buffer APairs { uvec2 a_pairs[]; };
layout(set = 0, binding = kMatmulBindingA) readonly buffer AVec { uvec4 a_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BVec { uvec4 b_vec[]; };
#else
layout(set = 0, binding = kMatmulBindingA) readonly buffer A { float a[]; };
layout(set = 0, binding = kMatmulBindingA) readonly buffer AVec { vec4 a_vec[]; };
layout(set = 0, binding = kMatmulBindingA) readonly buffer AChunks { uvec4 a_chunks[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer B { float b[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BVec { vec4 b_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BChunks { uvec4 b_chunks[]; };
#endif
layout(set = 0, binding = kMatmulBindingB) readonly buffer BWords { uint b_words[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BPairs { uvec2 b_pairs[]; };
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

// kChunk: numbers in 16 bytes of the stage.
#ifdef CODES
const bool kAlongK = true;
// In chunks of 8, half the bytes stay unused: matrices 8 deep begin at a chunk.
const uint kChunk = kMatDepth % 16 == 0 ? 16 : 8;
#else
const float kCode = 1.0;

#include "common/packed_b.glsl"
#include "common/halves.glsl"

const bool kAlongK = kBLoad == kMatmulBVecK || kPacked != kPackedF32;
const uint kChunk = 8;
#endif

const uint kSubgroupsAcross = kTileColumns / kSubgroupColumns;
const uint kSubgroups = kTileRows / kSubgroupRows * kSubgroupsAcross;
const uint kThreads = kSubgroups * kSubgroup;
const uint kMatsDown = kSubgroupRows / kMatRows;
const uint kMatsAcross = kSubgroupColumns / kMatColumns;

// The stage, in chunks. Where sums are not finished element by element (ELEMENTS), they pass
// through it afterwards: kMatRows rows of a subgroup at a time, by fours.
const uint kDepthChunks = kTileDepth / kChunk;
const uint kColumnChunks = kTileColumns / kChunk;
const uint kAPitch = kDepthChunks + 1;
const uint kBPitch = kAlongK ? kDepthChunks + 1 : kColumnChunks + 1;
const uint kAChunks = kTileRows * kAPitch;
const uint kBChunks = kAlongK ? kTileColumns * kBPitch : kTileDepth * kBPitch;
const uint kHalf = kAChunks + kBChunks;
const uint kStripPitch = kSubgroupColumns / 4;
const uint kStrip = kMatRows * kStripPitch;
#ifdef ELEMENTS
const uint kStageSize = kStages * kHalf;
#else
const uint kStageSize = kSubgroups * kStrip > kStages * kHalf ? kSubgroups * kStrip : kStages * kHalf;
#endif
shared uvec4 stage[kStageSize];

// The chunks of A and B that an invocation carries from global memory to the stage in a step. What
// is fp32 there is two vec4 a chunk, and rounded on its way to the stage: rounding any sooner would
// wait for the loads before the products, not behind them.
#ifdef CODES
const bool kRoundedA = false;
const bool kRoundedB = false;
#else
const bool kRoundedA = kALoad != kMatmulAHalves;
const bool kRoundedB = kPacked == kPackedF32;
#endif
const uint kAParts = kRoundedA ? 2 : 1;
const uint kBParts = kRoundedB ? 2 : 1;
const uint kAItems = (kTileRows * kDepthChunks + kThreads - 1) / kThreads;
const uint kBItems = (kTileColumns * kDepthChunks + kThreads - 1) / kThreads;
uvec4 a_next[kAItems * kAParts];
uvec4 b_next[kBItems * kBParts];

// Parts of chunks of A and of B: from k on, of the row or column that begins there; or of the row
// of B, from column n on. What becomes of them; and what a row's sums in four columns stand for.
#ifdef CODES
uvec4 chunk_of_a(uint row, uint k) {
    if (k >= p.k) {
        return uvec4(0);
    }
    return kChunk == 16 ? a_vec[(row + (k >> 2)) >> 2] : uvec4(a_pairs[(row + (k >> 2)) >> 1], 0, 0);
}

uvec4 chunk_along_k(uint column, uint k) {
    if (k >= p.k) {
        return uvec4(0);
    }
    return kChunk == 16 ? b_vec[(column + (k >> 2)) >> 2] : uvec4(b_pairs[(column + (k >> 2)) >> 1], 0, 0);
}

uvec4 chunk_along_n(uint at, uint n) {
    return uvec4(0);
}

uvec4 rounded(uvec4 low, uvec4 high) {
    return low;
}

vec4 scaled(uvec4 sums, uint row, uvec4 columns) {
    vec4 scales;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        scales[j] = uintBitsToFloat(b_words[columns[j] + p.k / 4]);
    }
    return vec4(ivec4(sums)) * uintBitsToFloat(a_words[row + p.k / 4]) * scales;
}
#else
uvec4 chunk_of_a(uint row, uint k) {
    if (kALoad == kMatmulAHalves) {
        return k < p.k ? a_chunks[(row + (k >> 1)) >> 2] : uvec4(0);
    }
    return floatBitsToUint(numbers_of_a(row, k));
}

uvec4 chunk_along_k(uint column, uint k) {
    if (kPacked == kPackedF16) {  // behind a row's numbers are zeros, to the end of a chunk
        return k < p.k ? b_chunks[(column + (k >> 1)) >> 2] : uvec4(0);
    }
    return kRoundedB ? floatBitsToUint(numbers_along_k(column, k))
                     : uvec4(four_along_k(column, k), four_along_k(column, k + 4));
}

uvec4 chunk_along_n(uint at, uint n) {
    return floatBitsToUint(numbers_along_n(at, n));
}

uvec4 rounded(uvec4 low, uvec4 high) {
    return uvec4(halves(uintBitsToFloat(low)), halves(uintBitsToFloat(high)));
}

vec4 scaled(uvec4 sums, uint row, uvec4 columns) {
    vec4 value = uintBitsToFloat(sums);
    if (kPacked == kPackedInt8) {
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            value[j] *= column_scale(columns[j]);
        }
    }
    return value;
}
#endif

void fetch(uint a_base, uint b_base, uint m0, uint n0, uint k0) {
    [[unroll]] for (uint i = 0; i < kAItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kDepthChunks;
        uint k = k0 + (item - row * kDepthChunks) * kChunk;
        [[unroll]] for (uint part = 0; part < kAParts; ++part) {
            a_next[i * kAParts + part] = chunk_of_a(a_base + min(m0 + row, p.m - 1) * p.a_row, k + part * 4);
        }
    }
    [[unroll]] for (uint i = 0; i < kBItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        if (kAlongK) {
            uint column = item / kDepthChunks;
            uint k = k0 + (item - column * kDepthChunks) * kChunk;
            [[unroll]] for (uint part = 0; part < kBParts; ++part) {
                b_next[i * kBParts + part] =
                    chunk_along_k(b_base + min(n0 + column, p.n - 1) * p.b_column, k + part * 4);
            }
        } else {
            uint depth = item / kColumnChunks;
            uint n = n0 + (item - depth * kColumnChunks) * kChunk;
            [[unroll]] for (uint part = 0; part < kBParts; ++part) {
                b_next[i * kBParts + part] =
                    k0 + depth < p.k ? chunk_along_n(b_base + (k0 + depth) * p.b_k, n + part * 4) : uvec4(0);
            }
        }
    }
}

void put(uint half_base) {
    [[unroll]] for (uint i = 0; i < kAItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kDepthChunks;
        if (row < kTileRows) {
            stage[half_base + row * kAPitch + item - row * kDepthChunks] =
                kRoundedA ? rounded(a_next[i * kAParts], a_next[i * kAParts + kAParts - 1]) : a_next[i];
        }
    }
    const uint kRowItems = kAlongK ? kDepthChunks : kColumnChunks;
    const uint kRows = kAlongK ? kTileColumns : kTileDepth;
    [[unroll]] for (uint i = 0; i < kBItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kRowItems;
        if (row < kRows) {
            stage[half_base + kAChunks + row * kBPitch + item - row * kRowItems] =
                kRoundedB ? rounded(b_next[i * kBParts], b_next[i * kBParts + kBParts - 1]) : b_next[i];
        }
    }
}

#ifdef ELEMENTS
// An output from its sum, where C has it: element (row, column) of the matrix at (m0, n0).
SUM finish(const in uint row, const in uint column, const in SUM sum, const in uint m0, const in uint n0,
           const in uvec3 bases) {
    uint m = m0 + row;
    uint n = n0 + column;
    if (m < p.m && n < p.n) {
        vec4 value = scaled(uvec4(BITS(sum)), bases.x + m * p.a_row, uvec4(bases.y + n * p.b_column));
        uint at = bases.z + m * p.c_row + n * p.c_column;
        c[at] = with_other(activate(kAct, value.x * p.alpha + biases(n).x), at);
    }
    return sum;
}
#endif

void main() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return;
    }
    uint m0 = take_dimension(rest, tiles_over(p.m, kTileRows)) * kTileRows;
    uint n0 = take_dimension(rest, tiles_over(p.n, kTileColumns)) * kTileColumns;
    ProductBases base = product_bases(rest);
#ifndef CODES
    part_words = base.part;
#endif
    uint subgroup_row = part_row(gl_SubgroupID, kTileColumns, kSubgroupRows, kSubgroupColumns);
    uint subgroup_column = part_column(gl_SubgroupID, kTileColumns, kSubgroupColumns);

    coopmat<SUM, gl_ScopeSubgroup, kMatRows, kMatColumns, gl_MatrixUseAccumulator> sums[kMatsDown * kMatsAcross];
    [[unroll]] for (uint i = 0; i < kMatsDown * kMatsAcross; ++i) {
        sums[i] = coopmat<SUM, gl_ScopeSubgroup, kMatRows, kMatColumns, gl_MatrixUseAccumulator>(SUM(0));
    }
    fetch(base.a, base.b, m0, n0, 0);
    put(0);
    barrier();
    uint half_base = 0;
    for (uint k0 = 0; k0 < p.k; k0 += kTileDepth) {
        bool more = k0 + kTileDepth < p.k;
        if (more) {
            fetch(base.a, base.b, m0, n0, k0 + kTileDepth);
        }
        [[unroll]] for (uint depth = 0; depth < kTileDepth; depth += kMatDepth) {
            coopmat<NUMBER, gl_ScopeSubgroup, kMatRows, kMatDepth, gl_MatrixUseA> rows[kMatsDown];
            [[unroll]] for (uint i = 0; i < kMatsDown; ++i) {
                coopMatLoad(rows[i], stage, half_base + (subgroup_row + i * kMatRows) * kAPitch + depth / kChunk, kAPitch,
                            gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint j = 0; j < kMatsAcross; ++j) {
                coopmat<NUMBER, gl_ScopeSubgroup, kMatDepth, kMatColumns, gl_MatrixUseB> columns;
                uint n = subgroup_column + j * kMatColumns;
                if (kAlongK) {
                    coopMatLoad(columns, stage, half_base + kAChunks + n * kBPitch + depth / kChunk, kBPitch,
                                gl_CooperativeMatrixLayoutColumnMajor);
                } else {
                    coopMatLoad(columns, stage, half_base + kAChunks + depth * kBPitch + n / kChunk, kBPitch,
                                gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint i = 0; i < kMatsDown; ++i) {
                    sums[i * kMatsAcross + j] = coopMatMulAdd(rows[i], columns, sums[i * kMatsAcross + j]);
                }
            }
        }
        if (kStages == 1) {
            barrier();
        } else {
            half_base = kHalf - half_base;
        }
        if (more) {
            put(half_base);
        }
        barrier();
    }

#ifdef ELEMENTS
    [[unroll]] for (uint i = 0; i < kMatsDown; ++i) {
        [[unroll]] for (uint j = 0; j < kMatsAcross; ++j) {
            coopMatPerElementNV(sums[i * kMatsAcross + j], sums[i * kMatsAcross + j], finish,
                                m0 + subgroup_row + i * kMatRows, n0 + subgroup_column + j * kMatColumns,
                                uvec3(base.a, base.b, base.c));
        }
    }
#else
    uint strip = gl_SubgroupID * kStrip;
    [[unroll]] for (uint i = 0; i < kMatsDown; ++i) {
        [[unroll]] for (uint j = 0; j < kMatsAcross; ++j) {
            coopMatStore(sums[i * kMatsAcross + j], stage, strip + j * (kMatColumns / 4), kStripPitch,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
        for (uint item = gl_SubgroupInvocationID; item < kStrip; item += kSubgroup) {
            uint m = m0 + subgroup_row + i * kMatRows + strip_row(item, kSubgroupColumns);
            uint n = n0 + subgroup_column + strip_column(item, kSubgroupColumns);
            if (m < p.m && n < p.n) {
                uvec4 columns = base.b + min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1)) * p.b_column;
                store_quad(scaled(stage[strip + item], base.a + m * p.a_row, columns), biases(n), m, n, base.c);
            }
        }
        barrier();
    }
#endif
}
