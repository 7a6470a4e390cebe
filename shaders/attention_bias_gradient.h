// SPDX-License-Identifier: Apache-2.0
// Parameters of attention_bias_gradient.comp: the gradient of attention's bias, which is ds summed
// over the dimensions in which it broadcasts, a chunk of queries at a time.
#ifndef VKF_SHADERS_ATTENTION_BIAS_GRADIENT_H
#define VKF_SHADERS_ATTENTION_BIAS_GRADIENT_H

#include "common/types.h"

VKF_CONSTANT(kBiasGradientBindingDs, 0)   // (batch, head, query, key), strided
VKF_CONSTANT(kBiasGradientBindingOut, 1)  // the same; 1 where the bias is

// the dimensions that are not summed over, kAttentionPresent... of attention.h
VKF_CONSTANT(kBiasGradientSpecPresent, 1)

// clang-format off
VKF_PUSH_BEGIN(AttentionBiasGradientPush)
    uint count;       // sums
    uint batches;
    uint heads;
    uint queries;     // of the chunk
    uint keys;
    uint group;       // heads whose ds lie side by side
    uint part;        // keys that an invocation takes, one after the other
    uint parts;
    uint ds_batch;
    uint ds_group;
    uint ds_head;     // within a group
    uint ds_query;
    uint ds_key;
    uint ds_offset;
    uint out_batch;
    uint out_head;
    uint out_query;
    uint out_part;
    uint out_offset;
    uint more;        // 1: an earlier chunk's sums are there, and these are added
VKF_PUSH_END(AttentionBiasGradientPush)
// clang-format on

#endif
