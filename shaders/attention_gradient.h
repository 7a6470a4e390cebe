// SPDX-License-Identifier: Apache-2.0
// The gradient of attention without the matrix of scores (Dao 2023, FlashAttention-2): weights are
// computed again from the log-sum-exp, once for the gradient of the queries, and once for those of
// keys and values; or once for a chunk of queries, of which ds is kept. Rows of query heads ride
// together as in attention.h.
#ifndef VKF_SHADERS_ATTENTION_GRADIENT_H
#define VKF_SHADERS_ATTENTION_GRADIENT_H

#include "common/rounds.h"

VKF_CONSTANT(kAttentionGradientBindingQuery, 0)
VKF_CONSTANT(kAttentionGradientBindingKey, 1)
VKF_CONSTANT(kAttentionGradientBindingValue, 2)
VKF_CONSTANT(kAttentionGradientBindingDy, 3)
VKF_CONSTANT(kAttentionGradientBindingLse, 4)     // (batch, head, query, 2): log_sum_exp.glsl
VKF_CONSTANT(kAttentionGradientBindingDelta, 5)   // (batch, head, query), dense: attention_delta.h
// bits, as in attention.h; as for the next two, any buffer where there is none
VKF_CONSTANT(kAttentionGradientBindingMask, 6)
VKF_CONSTANT(kAttentionGradientBindingBias, 7)    // dense floats
// dense floats; or the ranges of sequences (attention_ranges.h), which have no slopes
VKF_CONSTANT(kAttentionGradientBindingSlopes, 8)
// of the queries; or of the keys
VKF_CONSTANT(kAttentionGradientBindingFirst, 9)
VKF_CONSTANT(kAttentionGradientBindingSecond, 10)  // of the values

// ds of a chunk, (batch, key/value head, key, plane, row of queries); any buffer where none is kept
VKF_CONSTANT(kAttentionGradientBindingKept, 11)

VKF_CONSTANT(kAttentionGradientBindings, 12)

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
// causal: a query sees itself and the window - 1 keys before it; 0: all before it
VKF_CONSTANT(kAttentionGradientSpecWindow, 15)
// rows of queries that a dispatch takes, a multiple of 32; 0: all
VKF_CONSTANT(kAttentionGradientSpecChunk, 16)
VKF_CONSTANT(kAttentionGradientSpecKeep, 17)  // a kAttentionGradientKeep... below
// 1: each query and key sees a range, and `causal` does not matter
VKF_CONSTANT(kAttentionGradientSpecSequences, 18)

VKF_CONSTANT(kAttentionGradientOfQueries, 0)
VKF_CONSTANT(kAttentionGradientOfKeys, 1)  // and of values
VKF_CONSTANT(kAttentionGradientOfKept, 2)  // of queries, of ds, as the keys' side kept it

VKF_CONSTANT(kAttentionGradientKeepNone, 0)
VKF_CONSTANT(kAttentionGradientKeepSeen, 1)  // ds of the tiles in which some query sees a key
VKF_CONSTANT(kAttentionGradientKeepAll, 2)   // of each pair; 0 where it is not computed
// the same, and a second plane: ds before the softcap's slope, which passes to the bias
VKF_CONSTANT(kAttentionGradientKeepBoth, 3)

VKF_CONSTANT(kAttentionGradientMaxBlocks, 4)

#ifdef __cplusplus
namespace vkf::shader {
#endif

// Planes of the kept ds.
VKF_FUNCTION uint attention_gradient_planes(uint keep) {
    return keep == kAttentionGradientKeepBoth ? 2u : 1u;
}

#ifdef __cplusplus
}  // namespace vkf::shader
#endif

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
    uint chunk_row;  // the first row of queries of the chunk
    uint seed;
VKF_PUSH_END(AttentionGradientPush)
// clang-format on

#endif
