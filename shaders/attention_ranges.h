// SPDX-License-Identifier: Apache-2.0
// What each query, and each key, sees where sequences have lengths of their own: of each batch
// first its queries, then its keys, two words each. They are the first key (query) that it sees,
// and the one behind the last; of what sees none 2^32 - 1 and 0.
#ifndef VKF_SHADERS_ATTENTION_RANGES_H
#define VKF_SHADERS_ATTENTION_RANGES_H

#include "common/types.h"

VKF_CONSTANT(kRangesBindingTable, 0)   // of attention_sequences.h, rows and heads of which are 1
VKF_CONSTANT(kRangesBindingRanges, 1)

VKF_CONSTANT(kRangesSpecPacked, 1)  // 1: sequences lie behind each other in a batch of one
VKF_CONSTANT(kRangesSpecCausal, 2)  // 0: none; 1: top-left; 2: bottom-right
// causal: a query sees itself and the window - 1 keys before it; 0: all before it
VKF_CONSTANT(kRangesSpecWindow, 3)

// clang-format off
VKF_PUSH_BEGIN(AttentionRangesPush)
    uint count;      // of ranges
    uint queries;    // of a batch
    uint keys;
    uint sequences;  // in the table
VKF_PUSH_END(AttentionRangesPush)
// clang-format on

#endif
