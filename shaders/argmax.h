// SPDX-License-Identifier: Apache-2.0
// Parameters of argmax.comp: the index of the largest element of each dense row.
#ifndef VKF_SHADERS_ARGMAX_H
#define VKF_SHADERS_ARGMAX_H

#include "common/types.h"

VKF_CONSTANT(kArgmaxBindingX, 0)
VKF_CONSTANT(kArgmaxBindingIndex, 1)
// what groups found that have parts of rows, an index each; any buffer where rows are not cut
VKF_CONSTANT(kArgmaxBindingParts, 2)

VKF_CONSTANT(kArgmaxSpecLanes, 1)
VKF_CONSTANT(kArgmaxSpecStage, 2)  // a kArgmaxStage... below
VKF_CONSTANT(kArgmaxSpecFours, 3)  // 1: every row begins at a multiple of four and has one
VKF_CONSTANT(kArgmaxSpecMarks, 4)  // 1: ~index where the largest element is not finite

VKF_CONSTANT(kArgmaxStageWhole, 0)  // rows, to the index
VKF_CONSTANT(kArgmaxStageParts, 1)  // parts of rows, to the parts
VKF_CONSTANT(kArgmaxStageMerge, 2)  // parts that were found, to the index

VKF_PUSH_BEGIN(ArgmaxPush)
    uint rows;
    uint width;
    uint x_offset;
    uint index_offset;
    uint parts_offset;
    uint parts;      // of a row
    uint part_size;  // elements of a part; a multiple of four
VKF_PUSH_END(ArgmaxPush)

#endif
