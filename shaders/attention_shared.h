// SPDX-License-Identifier: Apache-2.0
// Sizes of attention_shared.comp beside what attention.h says.
#ifndef VKF_SHADERS_ATTENTION_SHARED_H
#define VKF_SHADERS_ATTENTION_SHARED_H

#include "common/types.h"

// rows of a group, keys of a tile, and columns of a block of O
VKF_CONSTANT(kAttentionSharedTile, 32)
VKF_CONSTANT(kAttentionSharedLanes, 8)  // invocations a row, with four keys and four columns each

#endif
