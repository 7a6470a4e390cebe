// SPDX-License-Identifier: Apache-2.0
// Reductions over a row that `kLanes` neighbouring invocations share (a power of two that divides
// the group's size). With one lane a row nothing is shared and no barrier is reached. Include it
// after declaring kLanes.
//
// Sums have a fixed order. With SUBGROUPS, defined by the kernel, there is kSubgroups: where it is
// not 0, a row that a whole group shares is summed within each subgroup and then over these,
// whatever their size. Else it is a tree of at most kMaxRowGroup invocations.
#ifndef VKF_SHADERS_COMMON_ROW_GLSL
#define VKF_SHADERS_COMMON_ROW_GLSL

#include "common/numeric.glsl"
#include "common/order.glsl"
#include "common/row.h"
#include "common/tiles.h"

uint row_lane() {
    return gl_LocalInvocationID.x % kLanes;
}

// The row of this invocation, when groups take gl_WorkGroupSize.x / kLanes rows each.
uint row_of(uint group) {
    return shared_row(group, gl_WorkGroupSize.x, kLanes, gl_LocalInvocationID.x);
}

#ifdef SUBGROUPS
#include "common/subgroups.h"

layout(constant_id = kSpecSubgroups) const uint kSubgroups = 0u;

// Two halves, taken by turns: one barrier a reduction then keeps its words from the next but one.
shared uint row_words[2u * gl_WorkGroupSize.x];
uint row_half = 0u;

bool shared_by_group() {
    return kLanes == gl_WorkGroupSize.x;
}

// The words of which a row's result is made, each subgroup's or each lane's, as one invocation goes
// over them. A subgroup goes over all: how many invocations it has is counted, not believed.
struct RowParts {
    uint first;
    uint end;
    uint step;
};

RowParts put_words(uint word) {
    row_half = gl_WorkGroupSize.x - row_half;
    if (shared_by_group()) {
        if (subgroupElect()) {
            row_words[row_half + gl_SubgroupID] = word;
        }
        barrier();
        return RowParts(row_half + subgroupExclusiveAdd(1u), row_half + gl_NumSubgroups, subgroupAdd(1u));
    }
    row_words[row_half + gl_LocalInvocationID.x] = word;
    barrier();
    uint first = row_half + gl_LocalInvocationID.x - row_lane();
    return RowParts(first, first + kLanes, 1u);
}

// As row_sum().
float row_sum_by_subgroups(float value) {
    if (kLanes > 1u) {
        value = shared_by_group() ? subgroupAdd(value) : value;
        if (!shared_by_group() || gl_NumSubgroups > 1u) {
            RowParts parts = put_words(floatBitsToUint(value));
            value = 0.0;
            for (uint i = parts.first; i < parts.end; i += parts.step) {
                value += uintBitsToFloat(row_words[i]);
            }
            value = shared_by_group() ? subgroupAdd(value) : value;
        }
    }
    return value;
}

// Finds the largest of the keys of order_key() over the lanes of a row.
uint row_max_key(uint key) {
    if (kLanes > 1u) {
        key = shared_by_group() ? subgroupMax(key) : key;
        if (!shared_by_group() || gl_NumSubgroups > 1u) {
            RowParts parts = put_words(key);
            for (uint i = parts.first; i < parts.end; i += parts.step) {
                key = max(key, row_words[i]);
            }
            key = shared_by_group() ? subgroupMax(key) : key;
        }
    }
    return key;
}
#endif

shared float row_scratch[kMaxRowGroup];

// Sums over the lanes of a row, with the same bits in every lane: a tree in a fixed order. All
// invocations of the group call it.
float row_sum(float value) {
#ifdef SUBGROUPS
    if (kSubgroups != 0u) {
        return row_sum_by_subgroups(value);
    }
#endif
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
#ifdef SUBGROUPS
    if (kSubgroups != 0u) {
        return kLanes > 1u ? ordered_float(row_max_key(order_key(value))) : value;
    }
#endif
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

// The mean of so many, to the nearest where fma() rounds once. A device's division may be off by
// 2.5 units in the last place, which a row of equal values shows: what is left of it is divided by
// sqrt(eps).
float mean_of(float total, uint count) {
    float mean = total / float(count);
    precise float rest = fma(-mean, float(count), total);
    return mean + rest / float(count);
}

// The mean of a row, of which each lane has `count` numbers and added up what one of them, `first`,
// leaves of each: a plain sum of thousands of numbers that are all near 1000 loses their digits.
float row_mean_of(float first, uint count, float rests, uint width) {
    if (kLanes > 1u) {
        return mean_of(row_sum(first * float(count) + rests), width);
    }
    return first + mean_of(rests, width);
}

#endif
