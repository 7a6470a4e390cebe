// SPDX-License-Identifier: Apache-2.0
// Parameters of reduce.comp: sums over some dimensions of a strided tensor.
#ifndef VKF_SHADERS_REDUCE_H
#define VKF_SHADERS_REDUCE_H

#include "common/types.h"

VKF_CONSTANT(kReduceBindingX, 0)
VKF_CONSTANT(kReduceBindingOut, 1)

VKF_CONSTANT(kReduceSpecLanes, 1)   // invocations that share one sum
VKF_CONSTANT(kReduceSpecSquare, 2)  // 1: sums of squares

// Elements of one inner sum, where all that is summed lies in one dimension.
VKF_CONSTANT(kReduceRun, 256)

VKF_PUSH_BEGIN(ReducePush)
    uint count;      // sums
    uint size[5];    // of the result, 1 where it is summed over
    uint stride[5];  // of x there
    // What is summed for one result: outer0 * outer1 runs of `inner` elements; the last of each
    // outer1 has `last`.
    uint outer0;
    uint outer1;
    uint inner;
    uint last;
    uint outer0_stride;
    uint outer1_stride;
    uint inner_stride;
    // Every sum is taken in so many parts, which lie behind each other in the result.
    uint parts;
    uint x_offset;
    uint out_offset;
VKF_PUSH_END(ReducePush)

#endif
