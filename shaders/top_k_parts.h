// SPDX-License-Identifier: Apache-2.0
// Parameters of top_k_parts.comp: the k largest elements of each dense row, in order, part by part.
#ifndef VKF_SHADERS_TOP_K_PARTS_H
#define VKF_SHADERS_TOP_K_PARTS_H

#include "common/types.h"
#include "top_k.h"

VKF_CONSTANT(kTopKPartsBindingX, 0)
// k a part: the best of it, where they lie in their row; all ones where there are fewer
VKF_CONSTANT(kTopKPartsBindingIndices, 1)
// what an earlier dispatch found; any buffer where there was none
VKF_CONSTANT(kTopKPartsBindingFound, 2)
VKF_CONSTANT(kTopKPartsBindingValues, 3)  // not bound but by the last

VKF_CONSTANT(kTopKPartsSpecHeld, 1)    // elements that an invocation holds; a power of two
VKF_CONSTANT(kTopKPartsSpecStage, 2)   // bits: kTopKStage... below
VKF_CONSTANT(kTopKPartsSpecFours, 3)   // 1: every row begins at a multiple of four and has one

VKF_CONSTANT(kTopKStageMerge, 1)  // of what was found, not of whole rows
VKF_CONSTANT(kTopKStageLast, 2)   // a part a row: to the result

VKF_CONSTANT(kTopKMostHeld, 16)
// so few elements are ranked at once; the largest k, and the smallest group
VKF_CONSTANT(kTopKMostRanked, kTopKMost)

VKF_PUSH_BEGIN(TopKPartsPush)
    uint width;      // of a row
    uint count;      // elements of a row that are looked at: all, or those found
    uint parts;      // of a row
    uint part_size;  // elements of a part; a multiple of four
    uint k;
    uint x_offset;
    uint indices_offset;
    uint found_offset;
    uint values_offset;
VKF_PUSH_END(TopKPartsPush)

#endif
