// SPDX-License-Identifier: Apache-2.0
// The boolean mask of sequences with lengths of their own: 1 where a key is of the query's sequence
// and seen by it.
#ifndef VKF_SHADERS_SEQUENCE_MASK_H
#define VKF_SHADERS_SEQUENCE_MASK_H

#include "common/types.h"

VKF_CONSTANT(kSequenceMaskBindingTable, 0)  // see attention_sequences.h
VKF_CONSTANT(kSequenceMaskBindingMask, 1)   // (batch, queries, keys), dense

VKF_CONSTANT(kSequenceMaskSpecPacked, 1)  // 1: sequences lie behind each other in a batch of one
// 0: none; 1: top-left; 2: bottom-right, each sequence by itself
VKF_CONSTANT(kSequenceMaskSpecCausal, 2)

// clang-format off
VKF_PUSH_BEGIN(SequenceMaskPush)
    uint count;      // elements of the mask
    uint queries;
    uint keys;
    uint sequences;  // sequences in the table
    // causal: a query sees itself and the window - 1 keys before it; 0: all before it
    uint window;
VKF_PUSH_END(SequenceMaskPush)
// clang-format on

#endif
