// SPDX-License-Identifier: Apache-2.0
// Parameters of top_k.comp: the k largest elements of each dense row, in order.
#ifndef VKF_SHADERS_TOP_K_H
#define VKF_SHADERS_TOP_K_H

#include "common/types.h"

VKF_CONSTANT(kTopKBindingX, 0)
VKF_CONSTANT(kTopKBindingValues, 1)
VKF_CONSTANT(kTopKBindingIndices, 2)

VKF_CONSTANT(kTopKMost, 128)  // also the size of a group

VKF_PUSH_BEGIN(TopKPush)
uint width;
uint k;
uint x_offset;
uint values_offset;
uint indices_offset;
VKF_PUSH_END(TopKPush)

#endif
