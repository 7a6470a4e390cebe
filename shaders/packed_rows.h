// SPDX-License-Identifier: Apache-2.0
// Rows of numbers to and from the words of common/packed.h, on the device: key/value caches in 16 or 8 bits.
#ifndef VKF_SHADERS_PACKED_ROWS_H
#define VKF_SHADERS_PACKED_ROWS_H

#include "common/packed.h"

VKF_CONSTANT(kPackedRowsBindingFrom, 0)  // packing: numbers; unpacking: words
VKF_CONSTANT(kPackedRowsBindingTo, 1)    // the other

VKF_CONSTANT(kPackedRowsSpecType, 1)    // kPackedF16, kPackedBf16 or kPackedInt8
VKF_CONSTANT(kPackedRowsSpecUnpack, 2)  // 0: one invocation packs a row; 1: one unpacks four columns

VKF_PUSH_BEGIN(PackedRowsPush)
uint rows;
uint columns;
uint size[2];            // of the two inner dimensions of three that number the rows
uint numbers_stride[4];  // of these three, and of a column
uint numbers_offset;
uint words_stride[3];
uint words_offset;
VKF_PUSH_END(PackedRowsPush)

#endif
