#version 450
// SPDX-License-Identifier: Apache-2.0
// Su et al. 2021, "RoFormer". A row of width d is r/2 pairs and d - r elements that pass unchanged:
// so many work items a row. With kFours an item is eight elements: four pairs, or eight elements
// that pass. cos and sin come from a table made in double precision: the built-ins err by up to
// 2^-11.
#extension GL_GOOGLE_include_directive : require
#define WIDE 0
#include "common/fours.glsl"
#include "rope.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kRopeSpecHalf) const uint kHalf = 0;
layout(constant_id = kRopeSpecPositions) const uint kPositions = 0;
layout(constant_id = kRopeSpecFours) const uint kFours = 0;
layout(constant_id = kRopeSpecBack) const uint kBack = 0;

layout(push_constant) uniform Push { RopePush p; };
layout(set = 0, binding = kRopeBindingX) readonly buffer X { float x[]; };
FOURS_IN(kRopeBindingX, XFours, x_fours)
layout(set = 0, binding = kRopeBindingTable) readonly buffer Table { float table[]; };
FOURS_IN(kRopeBindingTable, TableFours, table_fours)
layout(set = 0, binding = kRopeBindingPositions) readonly buffer Positions { uint positions[]; };
layout(set = 0, binding = kRopeBindingY) writeonly buffer Y { float y[]; };
FOURS_OUT(kRopeBindingY, YFours, y_fours)

#include "common/dispatch.glsl"
#include "common/numeric.glsl"

// `from` and `to` in fours, `position` the row of the table. Two vectors of cos and sin
// alternating, for four pairs.
void turn_fours(uint item, uint position, uint from, uint to) {
    uint pair_fours = p.pairs / 4u;
    if (item >= pair_fours) {
        uint column = 2u * item;
        VKF_PUT_FOUR(y_fours, to + column, VKF_FOUR(x_fours, from + column));
        VKF_PUT_FOUR(y_fours, to + column + 1u, VKF_FOUR(x_fours, from + column + 1u));
        return;
    }
    vec4 turns_0 = vec4(quiet_nan());
    vec4 turns_1 = turns_0;
    if (position < p.table_rows) {
        uint at = p.table_offset / 4u + 2u * (position * pair_fours + item);
        turns_0 = VKF_FOUR(table_fours, at);
        turns_1 = VKF_FOUR(table_fours, at + 1u);
    }
    vec4 cosine = vec4(turns_0.xz, turns_1.xz);
    vec4 sine = vec4(turns_0.yw, turns_1.yw);
    sine = kBack != 0u ? -sine : sine;
    uint first = kHalf != 0u ? item : 2u * item;
    uint second = kHalf != 0u ? item + pair_fours : 2u * item + 1u;
    vec4 u = VKF_FOUR(x_fours, from + first);
    vec4 v = VKF_FOUR(x_fours, from + second);
    vec4 a = kHalf != 0u ? u : vec4(u.xz, v.xz);
    vec4 b = kHalf != 0u ? v : vec4(u.yw, v.yw);
    vec4 turned_a = a * cosine - b * sine;
    vec4 turned_b = b * cosine + a * sine;
    if (kHalf != 0u) {
        VKF_PUT_FOUR(y_fours, to + first, turned_a);
        VKF_PUT_FOUR(y_fours, to + second, turned_b);
    } else {
        VKF_PUT_FOUR(y_fours, to + first, vec4(turned_a.x, turned_b.x, turned_a.y, turned_b.y));
        VKF_PUT_FOUR(y_fours, to + second, vec4(turned_a.z, turned_b.z, turned_a.w, turned_b.w));
    }
}

void work_item(uint index) {
    uint rest = index;
    uint item = take_dimension(rest, kFours != 0u ? p.width / 8u : p.width - p.pairs);
    uint row = take_dimension(rest, p.size[3]);
    uint i2 = take_dimension(rest, p.size[2]);
    uint i1 = take_dimension(rest, p.size[1]);
    uint from = p.x_offset + row * p.x_stride[3] + i2 * p.x_stride[2] + i1 * p.x_stride[1] + rest * p.x_stride[0];
    uint to = p.y_offset + row * p.y_stride[3] + i2 * p.y_stride[2] + i1 * p.y_stride[1] + rest * p.y_stride[0];

    uint position = kPositions != 0u ? positions[p.positions_offset + row * p.positions_stride] : row;
    if (kFours != 0u) {
        turn_fours(item, position, from / 4u, to / 4u);
        return;
    }
    if (item >= p.pairs) {
        uint column = item + p.pairs;
        y[to + column * p.y_stride[4]] = x[from + column * p.x_stride[4]];
        return;
    }
    uint first = kHalf != 0u ? item : 2u * item;
    uint second = kHalf != 0u ? item + p.pairs : 2u * item + 1u;
    float cosine = quiet_nan();
    float sine = quiet_nan();
    if (position < p.table_rows) {
        uint at = p.table_offset + 2u * (position * p.pairs + item);
        cosine = table[at];
        sine = kBack != 0u ? -table[at + 1u] : table[at + 1u];
    }
    float a = x[from + first * p.x_stride[4]];
    float b = x[from + second * p.x_stride[4]];
    y[to + first * p.y_stride[4]] = a * cosine - b * sine;
    y[to + second * p.y_stride[4]] = b * cosine + a * sine;
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint items = max(kFours, 1u);
    uint first = first_item(group, gl_WorkGroupSize.x, gl_LocalInvocationID.x, items);
    uint end = min(first + items, p.count);
    for (uint index = first; index < end; ++index) {
        work_item(index);
    }
}
