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

// clang-format off
VKF_PUSH_BEGIN(AttentionGradientTilesPush)
    uint head_dim;   // columns of Q and K
    uint value_dim;  // columns of V and dY
    uint queries;
    uint keys;
    uint q_batch;
    uint q_head;
    uint q_row;
    uint q_offset;
    uint k_batch;
    uint k_head;
    uint k_row;
    uint k_offset;
    uint v_batch;
    uint v_head;
    uint v_row;
    uint v_offset;
    uint d_batch;    // of dY
    uint d_head;
    uint d_row;
    uint d_offset;
    uint first_batch;
    uint first_head;
    uint first_row;
    uint first_offset;
    uint second_batch;
    uint second_head;
    uint second_row;
    uint second_offset;
    uint window;
    uint seed;
VKF_PUSH_END(AttentionGradientTilesPush)
// clang-format on

#endif
