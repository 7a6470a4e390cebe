// SPDX-License-Identifier: Apache-2.0
// Puts together what attention's splits over the keys gave (Dao et al. 2023, Flash-Decoding):
// exact, in the order of the keys.
#ifndef VKF_SHADERS_ATTENTION_MERGE_H
#define VKF_SHADERS_ATTENTION_MERGE_H

#include "common/types.h"

// (batch, kv head, row, split, value width + 2): sums, maximum, total
VKF_CONSTANT(kMergeBindingPartial, 0)
VKF_CONSTANT(kMergeBindingOut, 1)
VKF_CONSTANT(kMergeBindingLse, 2)      // (batch, head, query); any buffer where it is not asked for

VKF_CONSTANT(kMergeSpecLse, 1)         // as kAttentionSpecLse

// clang-format off
VKF_PUSH_BEGIN(AttentionMergePush)
    uint count;       // elements of O
    uint splits;
    uint width;       // columns of a row of O
    uint queries;
    uint kv_heads;
    uint group;       // query heads a kv head
    uint o_batch;
    uint o_head;
    uint o_row;
    uint o_offset;
    float keep_scale;
VKF_PUSH_END(AttentionMergePush)
// clang-format on

#endif
