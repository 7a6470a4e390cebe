// SPDX-License-Identifier: Apache-2.0
// The table attention reads where sequences have lengths of their own, kAttentionSequenceWords
// words each. Packed, one more sequence than given takes the queries that are left, and has no
// keys. Whatever the lengths given say, what the table says lies within the tensors, and no two
// sequences share a query.
#ifndef VKF_SHADERS_ATTENTION_SEQUENCES_H
#define VKF_SHADERS_ATTENTION_SEQUENCES_H

#include "common/types.h"

// (sequences + 1) cumulative numbers of queries; any buffer where there are only lengths
VKF_CONSTANT(kSequencesBindingQueries, 0)
// (sequences + 1) cumulative numbers of keys, or (sequences) numbers of keys
VKF_CONSTANT(kSequencesBindingKeys, 1)
VKF_CONSTANT(kSequencesBindingTable, 2)

// 1: queries are packed; 0: every sequence has all its queries
VKF_CONSTANT(kSequencesSpecPackedQueries, 1)
// 1: keys are packed; 0: each sequence has room for all, and tells how many it has
VKF_CONSTANT(kSequencesSpecPackedKeys, 2)
VKF_CONSTANT(kSequencesSpecRows, 3)           // rows of a tile
VKF_CONSTANT(kSequencesSpecGroup, 4)          // rows a query

// clang-format off
VKF_PUSH_BEGIN(AttentionSequencesPush)
    uint count;           // sequences
    uint queries;         // queries of a batch of Q
    uint keys;            // keys of a batch of K, or what its pages have room for
    uint queries_offset;
    uint queries_stride;
    uint keys_offset;
    uint keys_stride;
VKF_PUSH_END(AttentionSequencesPush)
// clang-format on

#endif
