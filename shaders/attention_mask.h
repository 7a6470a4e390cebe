// SPDX-License-Identifier: Apache-2.0
// Packs a boolean mask into bits, 32 keys a word: 1 where a key may be attended, 0 past the last
// key.
#ifndef VKF_SHADERS_ATTENTION_MASK_H
#define VKF_SHADERS_ATTENTION_MASK_H

#include "common/types.h"

VKF_CONSTANT(kPackMaskBindingMask, 0)  // words, 0 or not, strided
VKF_CONSTANT(kPackMaskBindingBits, 1)  // dense

// clang-format off
VKF_PUSH_BEGIN(AttentionMaskPush)
    uint count;        // words out
    uint words;        // words of a row
    uint keys;
    uint size[3];      // batch, head, query
    uint stride[4];    // strides of the mask: batch, head, query, key
    uint offset;
    uint flip;         // 1: the mask says 1 where a key may not be attended
VKF_PUSH_END(AttentionMaskPush)
// clang-format on

#endif
