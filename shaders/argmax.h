// SPDX-License-Identifier: Apache-2.0
// Parameters of argmax.comp: the index of the largest element of each dense row.
#ifndef VKF_SHADERS_ARGMAX_H
#define VKF_SHADERS_ARGMAX_H

#include "common/types.h"

VKF_CONSTANT(kArgmaxBindingX, 0)
VKF_CONSTANT(kArgmaxBindingIndex, 1)

VKF_CONSTANT(kArgmaxSpecLanes, 1)

VKF_PUSH_BEGIN(ArgmaxPush)
    uint rows;
    uint width;
    uint x_offset;
    uint index_offset;
VKF_PUSH_END(ArgmaxPush)

#endif
