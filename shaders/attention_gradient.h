// SPDX-License-Identifier: Apache-2.0
// The gradient of attention without the matrix of scores (Dao 2023, FlashAttention-2): weights are
// computed again from the log-sum-exp, once for the gradient of the queries, and once for those of
// keys and values. Rows of query heads ride together as in attention.h.
#ifndef VKF_SHADERS_ATTENTION_GRADIENT_H
#define VKF_SHADERS_ATTENTION_GRADIENT_H

#include "common/rounds.h"

VKF_CONSTANT(kAttentionGradientBindingQuery, 0)
VKF_CONSTANT(kAttentionGradientBindingKey, 1)
VKF_CONSTANT(kAttentionGradientBindingValue, 2)
VKF_CONSTANT(kAttentionGradientBindingDy, 3)
VKF_CONSTANT(kAttentionGradientBindingLse, 4)     // dense (batch, head, query)
VKF_CONSTANT(kAttentionGradientBindingDelta, 5)   // the same: see attention_delta.h
// bits, as in attention.h; as for the next two, any buffer where there is none
VKF_CONSTANT(kAttentionGradientBindingMask, 6)
VKF_CONSTANT(kAttentionGradientBindingBias, 7)    // dense floats
VKF_CONSTANT(kAttentionGradientBindingSlopes, 8)  // dense floats
// of the queries; or of the keys
VKF_CONSTANT(kAttentionGradientBindingFirst, 9)
VKF_CONSTANT(kAttentionGradientBindingSecond, 10)  // of the values

VKF_CONSTANT(kAttentionGradientBindings, 11)

// Specialization constants. Id 0 is the local size in x.
VKF_CONSTANT(kAttentionGradientSpecSide, 1)    // a kAttentionGradient... below
// of 4 columns a lane that a group computes: 1, 2 or 4
VKF_CONSTANT(kAttentionGradientSpecBlocks, 2)
VKF_CONSTANT(kAttentionGradientSpecFours, 3)   // 1: everything is read and written by vec4
VKF_CONSTANT(kAttentionGradientSpecCausal, 4)  // as in attention.h, as those that follow
VKF_CONSTANT(kAttentionGradientSpecFill, 5)
VKF_CONSTANT(kAttentionGradientSpecGroup, 6)
VKF_CONSTANT(kAttentionGradientSpecThreshold, 7)
VKF_CONSTANT(kAttentionGradientSpecKeepScale, 8)
VKF_CONSTANT(kAttentionGradientSpecMask, 9)
VKF_CONSTANT(kAttentionGradientSpecBias, 10)
VKF_CONSTANT(kAttentionGradientSpecSlopes, 11)
VKF_CONSTANT(kAttentionGradientSpecScale, 12)    // a float
VKF_CONSTANT(kAttentionGradientSpecSoftcap, 13)  // a float; 0: none
VKF_CONSTANT(kAttentionGradientSpecHeads, 14)    // key/value heads

VKF_CONSTANT(kAttentionGradientOfQueries, 0)
VKF_CONSTANT(kAttentionGradientOfKeys, 1)  // and of values

VKF_CONSTANT(kAttentionGradientMaxBlocks, 4)

// clang-format off
VKF_PUSH_BEGIN(AttentionGradientPush)
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
VKF_PUSH_END(AttentionGradientPush)
// clang-format on

#endif
