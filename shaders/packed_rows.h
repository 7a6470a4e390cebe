// SPDX-License-Identifier: Apache-2.0
// Rows of numbers to and from the words of common/packed.h, on the device: key/value caches in 16
// or 8 bits, and weights as they load.
#ifndef VKF_SHADERS_PACKED_ROWS_H
#define VKF_SHADERS_PACKED_ROWS_H

#include "common/packed.h"

VKF_CONSTANT(kPackedRowsBindingFrom, 0)  // packing: numbers; unpacking: words
VKF_CONSTANT(kPackedRowsBindingTo, 1)    // the other

// kPackedF16, kPackedBf16, kPackedInt8 or, packing, kPackedInt4
VKF_CONSTANT(kPackedRowsSpecType, 1)
VKF_CONSTANT(kPackedRowsSpecUnpack, 2)  // 0: a row is packed; 1: an invocation unpacks four columns
VKF_CONSTANT(kPackedRowsSpecLanes, 3)   // invocations that pack a row: 1, or all of a group
// packing: what the numbers are, kPackedF32, or two a word kPackedF16 or kPackedBf16
VKF_CONSTANT(kPackedRowsSpecFrom, 4)

VKF_PUSH_BEGIN(PackedRowsPush)
uint rows;
uint columns;
uint size[2];            // sizes of the two inner dimensions of three that number the rows
uint numbers_stride[4];  // strides of these three, and of a column
uint numbers_offset;
uint words_stride[3];
uint words_offset;
VKF_PUSH_END(PackedRowsPush)

#endif
