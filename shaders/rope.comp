#version 450
// SPDX-License-Identifier: Apache-2.0
// Su et al. 2021, "RoFormer". A row of width d is r/2 pairs and d - r elements that pass unchanged:
// so many work items a row. With kFours an item is eight elements, four pairs or eight that pass,
// of kFours rows that have the same position (heads, sequences): their places are found, and their
// cos and sin loaded, once. These come from a table made in double precision: the built-ins err by
// up to 2^-11.
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

// cos and sin of four pairs.
struct Turns {
    vec4 cosine, sine;
};

// Of the pairs from four times `item` on.
Turns turns_at(uint position, uint item) {
    vec4 first = vec4(quiet_nan());  // cos and sin alternate
    vec4 second = first;
    if (position < p.table_rows) {
        uint at = p.table_offset / 4u + 2u * (position * (p.pairs / 4u) + item);
        first = VKF_FOUR(table_fours, at);
        second = VKF_FOUR(table_fours, at + 1u);
    }
    vec4 sine = vec4(first.yw, second.yw);
    return Turns(vec4(first.xz, second.xz), kBack != 0u ? -sine : sine);
}

// A row of one position: where it begins, by fours, and its place in two outer dimensions.
struct Head {
    uint from, to;
    uint i2, i1;
};

// `x` and `y` are the strides of the outer dimensions, by fours.
void to_next(inout Head h, uvec3 x, uvec3 y) {
    ++h.i2;
    h.from += x[2];
    h.to += y[2];
    if (h.i2 == p.size[2]) {
        h.i2 = 0u;
        ++h.i1;
        h.from += x[1] - p.size[2] * x[2];
        h.to += y[1] - p.size[2] * y[2];
    }
    if (h.i1 == p.size[1]) {
        h.i1 = 0u;
        h.from += x[0] - p.size[1] * x[1];
        h.to += y[0] - p.size[1] * y[1];
    }
}

void turn_fours(uint item, Turns turns, Head head) {
    uint first = kHalf != 0u ? item : 2u * item;
    uint second = kHalf != 0u ? item + p.pairs / 4u : 2u * item + 1u;
    vec4 u = VKF_FOUR(x_fours, head.from + first);
    vec4 v = VKF_FOUR(x_fours, head.from + second);
    vec4 a = kHalf != 0u ? u : vec4(u.xz, v.xz);
    vec4 b = kHalf != 0u ? v : vec4(u.yw, v.yw);
    vec4 turned_a = a * turns.cosine - b * turns.sine;
    vec4 turned_b = b * turns.cosine + a * turns.sine;
    if (kHalf != 0u) {
        VKF_PUT_FOUR(y_fours, head.to + first, turned_a);
        VKF_PUT_FOUR(y_fours, head.to + second, turned_b);
    } else {
        VKF_PUT_FOUR(y_fours, head.to + first, vec4(turned_a.x, turned_b.x, turned_a.y, turned_b.y));
        VKF_PUT_FOUR(y_fours, head.to + second, vec4(turned_a.z, turned_b.z, turned_a.w, turned_b.w));
    }
}

// Behind the pairs eight elements an item are copied.
void pass_fours(uint item, Head head) {
    uint from = head.from + 2u * item;
    uint to = head.to + 2u * item;
    VKF_PUT_FOUR(y_fours, to, VKF_FOUR(x_fours, from));
    VKF_PUT_FOUR(y_fours, to + 1u, VKF_FOUR(x_fours, from + 1u));
}

uint position_of(uint row) {
    return kPositions != 0u ? positions[p.positions_offset + row * p.positions_stride] : row;
}

void turn_rows(uint index) {
    uint rest = index;
    uint item = take_dimension(rest, p.width / 8u);
    uint row = take_dimension(rest, p.size[3]);
    uint outer = rest * kFours;
    uint count = kFours > 1u ? min(kFours, p.size[2] * p.size[1] * p.size[0] - outer) : 1u;
    uint i2 = take_dimension(outer, p.size[2]);
    uint i1 = take_dimension(outer, p.size[1]);
    uint from = p.x_offset + row * p.x_stride[3] + i2 * p.x_stride[2] + i1 * p.x_stride[1] + outer * p.x_stride[0];
    uint to = p.y_offset + row * p.y_stride[3] + i2 * p.y_stride[2] + i1 * p.y_stride[1] + outer * p.y_stride[0];
    bool passes = item >= p.pairs / 4u;
    // a position behind the table has no turns, and loads none
    Turns turns = turns_at(passes ? p.table_rows : position_of(row), item);
    Head head = Head(from / 4u, to / 4u, i2, i1);
    if (kFours == 1u) {
        if (passes) {
            pass_fours(item, head);
        } else {
            turn_fours(item, turns, head);
        }
        return;
    }
    uvec3 x_steps = uvec3(p.x_stride[0], p.x_stride[1], p.x_stride[2]) >> 2;
    uvec3 y_steps = uvec3(p.y_stride[0], p.y_stride[1], p.y_stride[2]) >> 2;
    // Two loops, as some compilers take both ways of a branch, but do not enter a loop for nothing.
    for (uint n = passes ? count : 0u; n < count; ++n) {
        turn_fours(item, turns, head);
        to_next(head, x_steps, y_steps);
    }
    for (uint n = passes ? 0u : count; n < count; ++n) {
        pass_fours(item, head);
        to_next(head, x_steps, y_steps);
    }
}

void work_item(uint index) {
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
    float cosine = quiet_nan();
    float sine = quiet_nan();
    uint position = position_of(row);
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
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= p.count) {
        return;
    }
    if (kFours != 0u) {
        turn_rows(index);
    } else {
        work_item(index);
    }
}
