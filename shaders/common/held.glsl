// SPDX-License-Identifier: Apache-2.0
// A row that its lanes hold in registers, so that it is read once: each has kHeld times four of its
// elements, by fours beside each other (kFours), else kLanes apart, so that neighbours read
// neighbouring elements either way. Include it after common/row.glsl, with kFours and kHeld
// declared. What lies beyond the end of a row is loaded from its last elements, because loads
// without a branch can wait together.
#ifndef VKF_SHADERS_COMMON_HELD_GLSL
#define VKF_SHADERS_COMMON_HELD_GLSL

#include "common/held.h"

// The place of the lane's i-th four, counted in fours.
uint held_four(uint i) {
    return held_four_place(i, row_lane(), kLanes);
}

// The places of the elements of the lane's i-th four.
uvec4 held_places(uint i) {
    if (kFours != 0u) {
        return 4u * held_four(i) + uvec4(0u, 1u, 2u, 3u);
    }
    uint lane = row_lane();
    return uvec4(held_place(i, 0u, lane, kLanes), held_place(i, 1u, lane, kLanes), held_place(i, 2u, lane, kLanes),
                 held_place(i, 3u, lane, kLanes));
}

bvec4 held_inside(uint i, uint width) {
    return kFours != 0u ? bvec4(4u * held_four(i) < width) : lessThan(held_places(i), uvec4(width));
}

// Where these are loaded from. width > 0.
uint held_four_from(uint i, uint width) {
    return min(held_four(i), width / 4u - 1u);
}
uvec4 held_from(uint i, uint width) {
    return min(held_places(i), uvec4(width - 1u));
}

// Defines a function that loads the lane's i-th four of a row of a buffer, which is declared of
// fours and of ones. `step` is between elements; by fours it is 1.
#define HELD_LOAD(name, fours, ones)                                       \
    vec4 name(uint at, uint step, uint i, uint width) {                    \
        if (kFours != 0u) {                                                \
            return fours[at / 4u + held_four_from(i, width)];              \
        }                                                                  \
        uvec4 from = at + held_from(i, width) * step;                      \
        return vec4(ones[from.x], ones[from.y], ones[from.z], ones[from.w]); \
    }

// Defines a function that stores it, as far as it is inside.
#define HELD_STORE(name, fours, ones)                    \
    void name(uint at, uint i, uint width, vec4 v) {     \
        bvec4 inside = held_inside(i, width);            \
        if (kFours != 0u) {                              \
            if (inside.x) {                              \
                fours[at / 4u + held_four(i)] = v;       \
            }                                            \
            return;                                      \
        }                                                \
        uvec4 places = at + held_places(i);              \
        if (inside.x) ones[places.x] = v.x;              \
        if (inside.y) ones[places.y] = v.y;              \
        if (inside.z) ones[places.z] = v.z;              \
        if (inside.w) ones[places.w] = v.w;              \
    }

#endif
