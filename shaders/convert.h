// SPDX-License-Identifier: Apache-2.0
// Parameters of convert.comp: copies between tensors of fp32 and of 16 bits, which lie two numbers
// a word.
#ifndef VKF_SHADERS_CONVERT_H
#define VKF_SHADERS_CONVERT_H

#include "common/packed.h"

VKF_CONSTANT(kConvertBindingFrom, 0)
VKF_CONSTANT(kConvertBindingTo, 1)

// Specialization constants.
VKF_CONSTANT(kConvertSpecFrom, 1)  // kPackedF32, kPackedF16 or kPackedBf16
VKF_CONSTANT(kConvertSpecTo, 2)    // kPackedF32, kPackedF16 or kPackedBf16
VKF_CONSTANT(kConvertSpecDense, 3) // 1: both dense and of one shape; the strides are not looked at
// 1: a word's other half, where it belongs to a neighbour, stays as it is; 0: it becomes 0
VKF_CONSTANT(kConvertSpecKeep, 4)

VKF_CONSTANT(kConvertPerInvocation, 4)

// Elements are counted in the order in which they lie in `to`: the dimensions are sorted by
// to_stride. Runs of elements lie behind each other there, and no two runs share a word. A word
// holds an element of fp32, or two of 16 bits.
VKF_PUSH_BEGIN(ConvertPush)
    uint count;      // words of `to` that the runs may touch, all together
    uint run;        // elements of a run
    uint run_words;  // words that a run may touch
    uint size[5];
    uint from_stride[5];
    uint to_stride[5];
    uint from_offset;
    uint to_offset;
VKF_PUSH_END(ConvertPush)

#endif
