#version 450
// SPDX-License-Identifier: Apache-2.0
//! needs GL_KHR_cooperative_matrix
// Matrix product on cooperative matrices: A and B are rounded to f16 (to the nearest, ties to even) while they are staged in
// shared memory, products are summed in fp32. A group computes kTileRows by kTileColumns outputs, each of its subgroups
// kSubgroupRows by kSubgroupColumns of them, and walks along k in steps of kTileDepth. What the next step needs is read
// into registers before this step's products and stored into the other half of the stage after them: one barrier a step.
//
// The stage holds f16 by eights. A lies row by row with k innermost, and so does B where it is read along k; else B lies
// with n innermost. An eight of padding per row keeps the matrices' rows off the same banks.
//
// Rows and columns past the end repeat the last one and are not stored. Past the end of k both operands are 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_cooperative_matrix : require

#include "matmul.h"

// SPIR-V's RoundingModeRTE (capability 4467, mode 4462) for numbers of 16 bits
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 16);

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecAVec) const uint kAVec = 0;
layout(constant_id = kMatmulSpecBLoad) const uint kBLoad = kMatmulBScalar;
layout(constant_id = kMatmulSpecCVec) const uint kCVec = 0;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecThird) const uint kThird = kMatmulThirdBias;
layout(constant_id = kMatmulSpecTileRows) const uint kTileRows = 64;
layout(constant_id = kMatmulSpecTileColumns) const uint kTileColumns = 64;
layout(constant_id = kMatmulSpecTileDepth) const uint kTileDepth = 32;
layout(constant_id = kMatmulSpecMatRows) const uint kMatRows = 16;
layout(constant_id = kMatmulSpecMatColumns) const uint kMatColumns = 16;
layout(constant_id = kMatmulSpecMatDepth) const uint kMatDepth = 16;
layout(constant_id = kMatmulSpecSubgroupRows) const uint kSubgroupRows = 32;
layout(constant_id = kMatmulSpecSubgroupColumns) const uint kSubgroupColumns = 32;
layout(constant_id = kMatmulSpecSubgroup) const uint kSubgroup = 32;

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
#include "common/third.glsl"

const bool kAlongK = kBLoad == kMatmulBVecK || kPacked != kPackedF32;

const uint kSubgroupsAcross = kTileColumns / kSubgroupColumns;
const uint kSubgroups = kTileRows / kSubgroupRows * kSubgroupsAcross;
const uint kThreads = kSubgroups * kSubgroup;
const uint kMatsDown = kSubgroupRows / kMatRows;
const uint kMatsAcross = kSubgroupColumns / kMatColumns;

// The stage, in eights of f16. Afterwards each subgroup's sums pass through it, kMatRows rows at a time, as fours of fp32.
const uint kDepthEights = kTileDepth / 8;
const uint kColumnEights = kTileColumns / 8;
const uint kAPitch = kDepthEights + 1;
const uint kBPitch = kAlongK ? kDepthEights + 1 : kColumnEights + 1;
const uint kAEights = kTileRows * kAPitch;
const uint kBEights = kAlongK ? kTileColumns * kBPitch : kTileDepth * kBPitch;
const uint kHalf = kAEights + kBEights;
const uint kStripPitch = kSubgroupColumns / 4;
const uint kStrip = kMatRows * kStripPitch;
const uint kStageSize = kSubgroups * kStrip > 2 * kHalf ? kSubgroups * kStrip : 2 * kHalf;
shared uvec4 stage[kStageSize];

// What an invocation carries from global memory to the stage, a step.
const uint kAItems = (kTileRows * kDepthEights + kThreads - 1) / kThreads;
const uint kBItems = (kTileColumns * kDepthEights + kThreads - 1) / kThreads;
uvec4 a_next[kAItems];
uvec4 b_next[kBItems];

uvec2 halves(vec4 x) {
    return uvec2(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)));
}

uvec2 four_of_a(uint row, uint k) {
    vec4 values = vec4(0.0);
    if (kAVec != 0) {
        if (k < p.k) {
            values = a_vec[(row + k) >> 2];
        }
    } else {
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            if (k + j < p.k) {
                values[j] = a[row + (k + j) * p.a_k];
            }
        }
    }
    return halves(values);
}

// From k on, of a column.
uvec2 four_along_k(uint column, uint k) {
    if (k >= p.k) {
        return uvec2(0);
    }
    if (kPacked == kPackedF16) {
        return b_pairs[(column >> 1) + (k >> 2)];
    }
    return halves(kPacked != kPackedF32 ? load_packed(column, k) : b_vec[(column + k) >> 2]);
}

// From column n on, of the row of B that begins at `at`.
uvec2 four_along_n(uint at, uint n) {
    if (kBLoad == kMatmulBVecN) {
        return halves(b_vec[(at + min(n, p.n - 4)) >> 2]);
    }
    uvec4 columns = at + min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1)) * p.b_column;
    return halves(vec4(b[columns.x], b[columns.y], b[columns.z], b[columns.w]));
}

void fetch(uint a_base, uint b_base, uint m0, uint n0, uint k0) {
    [[unroll]] for (uint i = 0; i < kAItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kDepthEights;
        uint k = k0 + (item - row * kDepthEights) * 8;
        uint at = a_base + min(m0 + row, p.m - 1) * p.a_row;
        a_next[i] = uvec4(four_of_a(at, k), four_of_a(at, k + 4));
    }
    [[unroll]] for (uint i = 0; i < kBItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        if (kAlongK) {
            uint column = item / kDepthEights;
            uint k = k0 + (item - column * kDepthEights) * 8;
            uint at = b_base + min(n0 + column, p.n - 1) * p.b_column;
            b_next[i] = uvec4(four_along_k(at, k), four_along_k(at, k + 4));
        } else {
            uint depth = item / kColumnEights;
            uint n = n0 + (item - depth * kColumnEights) * 8;
            uint at = b_base + (k0 + depth) * p.b_k;
            b_next[i] = k0 + depth < p.k ? uvec4(four_along_n(at, n), four_along_n(at, n + 4)) : uvec4(0);
        }
    }
}

void put(uint half_base) {
    [[unroll]] for (uint i = 0; i < kAItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kDepthEights;
        if (row < kTileRows) {
            stage[half_base + row * kAPitch + item - row * kDepthEights] = a_next[i];
        }
    }
    const uint kRowItems = kAlongK ? kDepthEights : kColumnEights;
    const uint kRows = kAlongK ? kTileColumns : kTileDepth;
    [[unroll]] for (uint i = 0; i < kBItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kRowItems;
        if (row < kRows) {
            stage[half_base + kAEights + row * kBPitch + item - row * kRowItems] = b_next[i];
        }
    }
}

// Four outputs of one row, from column n on.
void finish(vec4 sums, uint row, uint n, vec4 scales, vec4 shift) {
    vec4 value = sums * scales + shift;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        value[j] = activate(kAct, value[j]);
    }
    uint at = row + n * p.c_column;
    if (kCVec != 0) {
        c_vec[at >> 2] = with_third(value, at);
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (n + j < p.n) {
            c[at + j * p.c_column] = with_third(value[j], at + j * p.c_column);
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
    uint subgroup_row = part_row(gl_SubgroupID, kTileColumns, kSubgroupRows, kSubgroupColumns);
    uint subgroup_column = part_column(gl_SubgroupID, kTileColumns, kSubgroupColumns);

    coopmat<float, gl_ScopeSubgroup, kMatRows, kMatColumns, gl_MatrixUseAccumulator> sums[kMatsDown * kMatsAcross];
    [[unroll]] for (uint i = 0; i < kMatsDown * kMatsAcross; ++i) {
        sums[i] = coopmat<float, gl_ScopeSubgroup, kMatRows, kMatColumns, gl_MatrixUseAccumulator>(0.0);
    }
    fetch(a_base, b_base, m0, n0, 0);
    put(0);
    barrier();
    uint half_base = 0;
    for (uint k0 = 0; k0 < p.k; k0 += kTileDepth) {
        bool more = k0 + kTileDepth < p.k;
        if (more) {
            fetch(a_base, b_base, m0, n0, k0 + kTileDepth);
        }
        [[unroll]] for (uint depth = 0; depth < kTileDepth; depth += kMatDepth) {
            coopmat<float16_t, gl_ScopeSubgroup, kMatRows, kMatDepth, gl_MatrixUseA> rows[kMatsDown];
            [[unroll]] for (uint i = 0; i < kMatsDown; ++i) {
                coopMatLoad(rows[i], stage, half_base + (subgroup_row + i * kMatRows) * kAPitch + depth / 8, kAPitch,
                            gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint j = 0; j < kMatsAcross; ++j) {
                coopmat<float16_t, gl_ScopeSubgroup, kMatDepth, kMatColumns, gl_MatrixUseB> columns;
                uint n = subgroup_column + j * kMatColumns;
                if (kAlongK) {
                    coopMatLoad(columns, stage, half_base + kAEights + n * kBPitch + depth / 8, kBPitch,
                                gl_CooperativeMatrixLayoutColumnMajor);
                } else {
                    coopMatLoad(columns, stage, half_base + kAEights + depth * kBPitch + n / 8, kBPitch,
                                gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint i = 0; i < kMatsDown; ++i) {
                    sums[i * kMatsAcross + j] = coopMatMulAdd(rows[i], columns, sums[i * kMatsAcross + j]);
                }
            }
        }
        half_base = kHalf - half_base;
        if (more) {
            put(half_base);
        }
        barrier();
    }

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
                uvec4 columns = min(n + uvec4(0, 1, 2, 3), uvec4(p.n - 1));
                vec4 scales = vec4(p.alpha);
                if (kPacked == kPackedInt8) {
                    [[unroll]] for (uint j = 0; j < 4; ++j) {
                        scales[j] *= column_scale(b_base + columns[j] * p.b_column);
                    }
                }
                vec4 shift = vec4(0.0);
                if (p.bias_stride != 0) {
                    columns = p.bias_offset + columns * p.bias_stride;
                    shift = vec4(bias[columns.x], bias[columns.y], bias[columns.z], bias[columns.w]);
                }
                finish(uintBitsToFloat(stage[strip + item]), c_base + m * p.c_row, n, scales, shift);
            }
        }
        barrier();
    }
}
