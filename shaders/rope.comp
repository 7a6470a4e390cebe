#version 450
// SPDX-License-Identifier: Apache-2.0
// Su et al. 2021, "RoFormer". A row of width d is r/2 pairs and d - r elements that pass unchanged: so many work items a row.
// cos and sin come from a table made in double precision: the built-ins err by up to 2^-11.
#extension GL_GOOGLE_include_directive : require
#include "rope.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kHalf = 0;
layout(constant_id = 2) const uint kPositions = 0;

layout(push_constant) uniform Push { RopePush p; };
layout(set = 0, binding = kRopeBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kRopeBindingTable) readonly buffer Table { float table[]; };
layout(set = 0, binding = kRopeBindingPositions) readonly buffer Positions { uint positions[]; };
layout(set = 0, binding = kRopeBindingY) writeonly buffer Y { float y[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint rest = index;
    uint item = take_dimension(rest, p.width - p.pairs);
    uint row = take_dimension(rest, p.size[3]);
    uint i2 = take_dimension(rest, p.size[2]);
    uint i1 = take_dimension(rest, p.size[1]);
    uint from = p.x_offset + row * p.x_stride[3] + i2 * p.x_stride[2] + i1 * p.x_stride[1] + rest * p.x_stride[0];
    uint to = p.y_offset + row * p.y_stride[3] + i2 * p.y_stride[2] + i1 * p.y_stride[1] + rest * p.y_stride[0];

    if (item >= p.pairs) {
        uint column = item + p.pairs;
        y[to + column * p.y_stride[4]] = x[from + column * p.x_stride[4]];
        return;
    }
    uint first = kHalf != 0u ? item : 2u * item;
    uint second = kHalf != 0u ? item + p.pairs : 2u * item + 1u;
    uint position = kPositions != 0u ? positions[p.positions_offset + row * p.positions_stride] : row;
    float cosine = quiet_nan();
    float sine = quiet_nan();
    if (position < p.table_rows) {
        uint at = p.table_offset + 2u * (position * p.pairs + item);
        cosine = table[at];
        sine = table[at + 1u];
    }
    float a = x[from + first * p.x_stride[4]];
    float b = x[from + second * p.x_stride[4]];
    y[to + first * p.y_stride[4]] = a * cosine - b * sine;
    y[to + second * p.y_stride[4]] = b * cosine + a * sine;
}
