// SPDX-License-Identifier: Apache-2.0
// Parameters of rope.comp: rotary position embedding of (..., L, d) from a table of cos and sin.
#ifndef VKF_SHADERS_ROPE_H
#define VKF_SHADERS_ROPE_H

#include "common/types.h"

VKF_CONSTANT(kRopeBindingX, 0)
VKF_CONSTANT(kRopeBindingTable, 1)
VKF_CONSTANT(kRopeBindingPositions, 2)
VKF_CONSTANT(kRopeBindingY, 3)

// Specialization constants.
VKF_CONSTANT(kRopeSpecHalf, 1)       // 0: pairs (2i, 2i+1), 1: pairs (i, i + r/2)
// 1: a position for each row, 0: row l has position start + l (the table is a window there)
VKF_CONSTANT(kRopeSpecPositions, 2)
// The number of rows of one position of which an invocation takes an item. Not 0: x and y can be
// taken four elements at a time, d and r are multiples of 8.
VKF_CONSTANT(kRopeSpecFours, 3)

VKF_CONSTANT(kRopeSpecBack, 4)  // 1: rows turn the other way

VKF_PUSH_BEGIN(RopePush)
    uint count;        // invocations with work: see rope.comp
    uint size[4];      // the outer sizes of x, L last
    uint x_stride[5];
    uint y_stride[5];
    uint x_offset;
    uint y_offset;
    uint width;        // d
    uint pairs;        // r / 2
    uint table_rows;
    uint table_offset;
    uint positions_offset;
    uint positions_stride;
VKF_PUSH_END(RopePush)

#endif
