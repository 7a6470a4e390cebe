// SPDX-License-Identifier: Apache-2.0
// Reductions over a row that `kLanes` neighbouring invocations share (a power of two that divides
// the group's size, at most 128). With one lane a row nothing is shared and no barrier is reached.
// Include it after declaring kLanes.
#ifndef VKF_SHADERS_COMMON_ROW_GLSL
#define VKF_SHADERS_COMMON_ROW_GLSL

#include "common/numeric.glsl"
#include "common/tiles.h"

const uint kMaxRowGroup = 128;
shared float row_scratch[kMaxRowGroup];

uint row_lane() {
    return gl_LocalInvocationID.x % kLanes;
}

// The row of this invocation, when groups take gl_WorkGroupSize.x / kLanes rows each.
uint row_of(uint group) {
    return shared_row(group, gl_WorkGroupSize.x, kLanes, gl_LocalInvocationID.x);
}

// Sums over the lanes of a row, with the same bits in every lane: a tree in a fixed order. All
// invocations of the group call it.
float row_sum(float value) {
    if (kLanes > 1u) {
        uint at = gl_LocalInvocationID.x;
        barrier();
        row_scratch[at] = value;
        barrier();
        for (uint width = kLanes / 2u; width > 0u; width /= 2u) {
            if (row_lane() < width) {
                row_scratch[at] += row_scratch[at + width];
            }
            barrier();
        }
        value = row_scratch[at - row_lane()];
    }
    return value;
}

// Finds the largest number over the lanes of a row; NaN when one is.
float row_max(float value) {
    if (kLanes > 1u) {
        uint at = gl_LocalInvocationID.x;
        barrier();
        row_scratch[at] = value;
        barrier();
        for (uint width = kLanes / 2u; width > 0u; width /= 2u) {
            if (row_lane() < width) {
                row_scratch[at] = max_or_nan(row_scratch[at], row_scratch[at + width]);
            }
            barrier();
        }
        value = row_scratch[at - row_lane()];
    }
    return value;
}

#endif
