#version 450
// SPDX-License-Identifier: Apache-2.0
// Sums over some dimensions, in an order that depends on the sizes alone: runs of the innermost
// summed dimension, each added up by itself, part i of a sum taking every p.parts-th run from i on.
#extension GL_GOOGLE_include_directive : require
#include "reduce.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kReduceSpecLanes) const uint kLanes = 1;
layout(constant_id = kReduceSpecSquare) const uint kSquare = 0;

layout(push_constant) uniform Push { ReducePush p; };
layout(set = 0, binding = kReduceBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kReduceBindingOut) writeonly buffer Out { float result[]; };

#include "common/dispatch.glsl"
#include "common/row.glsl"

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint each = gl_WorkGroupSize.x / kLanes;
    uint rest = group;
    uint index = row_of(take_dimension(rest, tiles_over(p.count, each)));
    bool inside = index < p.count;
    uint from = p.x_offset + strided_offset(inside ? index : 0u, p.size, p.stride);
    uint runs = inside ? p.outer0 * p.outer1 : 0u;
    float total = 0.0;
    for (uint run = rest; run < runs; run += p.parts) {
        uint outer = run;
        uint inner = take_dimension(outer, p.outer1);
        uint at = from + inner * p.outer1_stride + outer * p.outer0_stride;
        uint end = inner + 1u == p.outer1 ? p.last : p.inner;
        float sum = 0.0;
        for (uint i = row_lane(); i < end; i += kLanes) {
            float v = x[at + i * p.inner_stride];
            sum += kSquare != 0u ? v * v : v;
        }
        total += sum;
    }
    total = row_sum(total);
    if (inside && row_lane() == 0u) {
        result[p.out_offset + rest * p.count + index] = total;
    }
}
