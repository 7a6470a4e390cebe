// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention's gradient on GPUs have beside attention_gradient.h:
// attention_gradient_shared.comp and attention_gradient_coopmat.comp.
#ifndef VKF_SHADERS_ATTENTION_GRADIENT_SHARED_H
#define VKF_SHADERS_ATTENTION_GRADIENT_SHARED_H

#include "attention_gradient.h"

// near rows that a group takes: 32 or 64 in shared memory
VKF_CONSTANT(kAttentionGradientSpecRows, 32)

// far rows of a tile, and columns of a block of the results
VKF_CONSTANT(kAttentionGradientTile, 32)
VKF_CONSTANT(kAttentionGradientThreads, 128)

#endif
