// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention's gradient on GPUs have beside attention_gradient.h:
// attention_gradient_shared.comp and attention_gradient_coopmat.comp.
#ifndef VKF_SHADERS_ATTENTION_GRADIENT_TILES_H
#define VKF_SHADERS_ATTENTION_GRADIENT_TILES_H

#include "attention_gradient.h"  // whose bindings and constants, up to the heads, they have

// near rows that a group takes: 32 or 64 in shared memory, kSubgroupRows a subgroup of matrices
VKF_CONSTANT(kAttentionGradientSpecRows, 32)

// attention_gradient_coopmat.comp: the matrices' shape, and what ops/attention_gradient_tiles.h
// says of a tile.
VKF_CONSTANT(kAttentionGradientSpecMatRows, 33)
VKF_CONSTANT(kAttentionGradientSpecMatColumns, 34)
VKF_CONSTANT(kAttentionGradientSpecMatDepth, 35)
VKF_CONSTANT(kAttentionGradientSpecSubgroupRows, 36)  // near rows of a subgroup
VKF_CONSTANT(kAttentionGradientSpecSubgroup, 37)      // its size
VKF_CONSTANT(kAttentionGradientSpecPart, 38)          // columns that are staged at once
VKF_CONSTANT(kAttentionGradientSpecWhole, 39)         // 1: rows are staged whole

// far rows of a tile, and columns of a block of the results
VKF_CONSTANT(kAttentionGradientTile, 32)
VKF_CONSTANT(kAttentionGradientThreads, 128)

#endif
