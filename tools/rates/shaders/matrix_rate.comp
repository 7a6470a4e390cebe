#version 450
// SPDX-License-Identifier: Apache-2.0
//! needs GL_KHR_cooperative_matrix
// A group is one subgroup. Its part of y, a matrix, becomes the sum of its chains: in each element
// steps * depth * x[0] * x[1] times 1 + 2 + ... + kMatrixRateChains. Every product has an A of its
// own, and B changes every kSame steps (by x[2], which is 1).
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#include "matrix_rate.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatrixRateSpecRows) const uint kRows = 16;
layout(constant_id = kMatrixRateSpecColumns) const uint kColumns = 16;
layout(constant_id = kMatrixRateSpecDepth) const uint kDepth = 16;
layout(constant_id = kMatrixRateSpecSame) const uint kSame = 1;

layout(push_constant) uniform Push { MatrixRatePush p; };
layout(set = 0, binding = kMatrixRateBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kMatrixRateBindingY) writeonly buffer Y { float y[]; };

#include "../../../shaders/common/dispatch.glsl"

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    coopmat<float16_t, gl_ScopeSubgroup, kRows, kDepth, gl_MatrixUseA> a[kMatrixRateChains];
    coopmat<float16_t, gl_ScopeSubgroup, kDepth, kColumns, gl_MatrixUseB> b =
        coopmat<float16_t, gl_ScopeSubgroup, kDepth, kColumns, gl_MatrixUseB>(float16_t(x[1]));
    coopmat<float, gl_ScopeSubgroup, kRows, kColumns, gl_MatrixUseAccumulator> sums[kMatrixRateChains];
    [[unroll]] for (uint i = 0; i < kMatrixRateChains; ++i) {
        a[i] = coopmat<float16_t, gl_ScopeSubgroup, kRows, kDepth, gl_MatrixUseA>(float16_t(x[0] * float(i + 1)));
        sums[i] = coopmat<float, gl_ScopeSubgroup, kRows, kColumns, gl_MatrixUseAccumulator>(0.0);
    }
    float16_t one = float16_t(x[2]);
    for (uint step = 0; step < p.steps; step += kSame) {
        [[unroll]] for (uint i = 0; i < kSame * kMatrixRateChains; ++i) {
            sums[i % kMatrixRateChains] = coopMatMulAdd(a[i % kMatrixRateChains], b, sums[i % kMatrixRateChains]);
        }
        b *= one;
    }
    [[unroll]] for (uint i = 1; i < kMatrixRateChains; ++i) {
        sums[0] += sums[i];
    }
    coopMatStore(sums[0], y, group * kRows * kColumns, kColumns, gl_CooperativeMatrixLayoutRowMajor);
}
