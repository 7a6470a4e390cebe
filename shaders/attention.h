// SPDX-License-Identifier: Apache-2.0
// Attention without the score matrix: O = softmax(scale Q K^T + ...) V, by running maxima and sums
// (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention). These kernels take the same
// parameters: attention_lanes.comp (tiles in registers, for processors), attention_shared.comp
// (tiles in shared memory), attention_rows.comp (few rows), attention_coopmat.comp (cooperative
// matrices, in f16) and attention_coopmat_elements.comp (the same, weights stay in them).
//
// Query heads that share a key/value head ride together: row r of a kv head is query r / kGroup of
// head r % kGroup within its group. All operands have unit stride along the head's width; the other
// strides are in elements. Sizes are all > 0 but for the number of keys.
#ifndef VKF_SHADERS_ATTENTION_H
#define VKF_SHADERS_ATTENTION_H

#include "common/packed.h"
#include "common/rounds.h"

VKF_CONSTANT(kAttentionBindingQuery, 0)
VKF_CONSTANT(kAttentionBindingKey, 1)
VKF_CONSTANT(kAttentionBindingValue, 2)
VKF_CONSTANT(kAttentionBindingOut, 3)
// The bindings below exist only in the `full` variants. Any buffer is bound where a feature is not
// used.
// bits: (batch, head, query, word) each present or 1, see kAttentionSpecMask
VKF_CONSTANT(kAttentionBindingMask, 4)
VKF_CONSTANT(kAttentionBindingBias, 5)       // floats: (batch, head, query, key) each present or 1
VKF_CONSTANT(kAttentionBindingSlopes, 6)     // floats: (batch, head) each present or 1
VKF_CONSTANT(kAttentionBindingSinks, 7)      // floats: (batch, head), as Slopes
// kAttentionSequenceWords words a sequence
VKF_CONSTANT(kAttentionBindingSequences, 8)
VKF_CONSTANT(kAttentionBindingPages, 9)      // (batch, table width): pages of each sequence
VKF_CONSTANT(kAttentionBindingLse, 10)       // log-sum-exp out, (batch, head, query), or of two
// (batch, kv head, row, split, value width + 2) of what a split gives
VKF_CONSTANT(kAttentionBindingPartial, 11)

// Specialization constants. Id 0 is the local size in x.
// rows a group takes: 4, 8 or 16 in registers (attention_rows: 8, or a whole group of query heads),
// 32 in shared memory, kSubgroupRows a subgroup of matrices
VKF_CONSTANT(kAttentionSpecRows, 1)
// columns of O a group takes, in blocks as wide as the kernel's tile of keys; at most 4
VKF_CONSTANT(kAttentionSpecBlocks, 2)
// 1: Q, K and V can be read by vec4: widths, strides and offsets multiples of four
VKF_CONSTANT(kAttentionSpecFours, 3)
VKF_CONSTANT(kAttentionSpecCausal, 4)      // 0: none; 1: top-left; 2: bottom-right
VKF_CONSTANT(kAttentionSpecSoftcap, 5)     // 1: p.softcap applies
// the bits of what a masked score becomes: of -inf; or of a finite number, then nothing may be
// skipped
VKF_CONSTANT(kAttentionSpecFill, 6)
VKF_CONSTANT(kAttentionSpecGroup, 7)       // query heads a kv head
// dropout: a weight goes when its random bits are below; 0: none does
VKF_CONSTANT(kAttentionSpecThreshold, 8)
// a float: what the weights that stay are multiplied by, 1 / (1 - p)
VKF_CONSTANT(kAttentionSpecKeepScale, 9)
// the type that K and V are kept as, a kPacked... of common/packed.h; packed, their strides are
// words
VKF_CONSTANT(kAttentionSpecKv, 10)
// The constants below exist only in the `full` variants. Masks and biases: 0: none; else 16 and a
// bit for each dimension that is present: 8 batch, 4 head, 2 query, 1 key.
VKF_CONSTANT(kAttentionSpecMask, 11)
VKF_CONSTANT(kAttentionSpecBias, 12)
VKF_CONSTANT(kAttentionSpecSlopes, 13)     // 0: none; else 16 and bits 8 and 4 as above
VKF_CONSTANT(kAttentionSpecSinks, 14)      // 0: none; else 16 and bits, as Slopes
// 1: each batch has its own number of keys; 2: and of queries, packed behind each other
VKF_CONSTANT(kAttentionSpecSequences, 15)
// 0: keys lie behind each other; else they lie in pages of so many
VKF_CONSTANT(kAttentionSpecPageSize, 16)
// 1: write the log-sum-exp; 2: and beside it what rounding took off it, for the gradient
VKF_CONSTANT(kAttentionSpecLse, 17)
VKF_CONSTANT(kAttentionSpecBiasFours, 18)  // 1: the bias can be read by vec4
// keys may be split among groups, at least so many each: see attention_split_keys(); 0: never
VKF_CONSTANT(kAttentionSpecSplit, 19)
// All variants read this one.
VKF_CONSTANT(kAttentionSpecRing, 20)       // 1: K and V are rings

// on cooperative matrices: their shape, and what ops/attention_tiles.h says of a tile.
VKF_CONSTANT(kAttentionSpecMatRows, 21)
VKF_CONSTANT(kAttentionSpecMatColumns, 22)
VKF_CONSTANT(kAttentionSpecMatDepth, 23)
VKF_CONSTANT(kAttentionSpecSubgroupRows, 24)  // rows a subgroup takes
VKF_CONSTANT(kAttentionSpecSubgroup, 25)      // its size
VKF_CONSTANT(kAttentionSpecPart, 26)          // columns of Q and K that are staged at once

// attention_rows.comp: p.head_dim
VKF_CONSTANT(kAttentionSpecHeadDim, 27)

// A sequence's words in the table: its first query, number of queries, first key, number of keys,
// and where sequences are packed the first of the row tiles that are its own.
VKF_CONSTANT(kAttentionSequenceWords, 5)

VKF_CONSTANT(kAttentionMaxBlocks, 4)
// A few queries against many keys leave most of a device idle: then the keys are split, for up to
// so many queries.
VKF_CONSTANT(kAttentionSplitQueries, 8)
VKF_CONSTANT(kAttentionMostSplits, 64)
// keys of a tile, and columns of a block, on cooperative matrices
VKF_CONSTANT(kAttentionMatrixTile, 32)
// attention_rows.comp: most rows of a group, and widest heads
VKF_CONSTANT(kAttentionRowsMost, 8)
VKF_CONSTANT(kAttentionRowsWidth, 256)
VKF_CONSTANT(kAttentionPresent, 16)
VKF_CONSTANT(kAttentionPresentBatch, 8)
VKF_CONSTANT(kAttentionPresentHead, 4)
VKF_CONSTANT(kAttentionPresentQuery, 2)
VKF_CONSTANT(kAttentionPresentKey, 1)

#ifdef __cplusplus
namespace vkf::shader {
#endif

// Keys that one split takes, a multiple of every kernel's tile: `least`, or more where that would
// make more than kAttentionMostSplits; 0: they are not split.
VKF_FUNCTION uint attention_split_keys(uint least, uint queries, uint keys) {
    uint each = ((keys + kAttentionMostSplits - 1u) / kAttentionMostSplits + 31u) / 32u * 32u;
    bool split = least != 0u && queries <= kAttentionSplitQueries && keys > least;
    return split ? (each > least ? each : least) : 0u;
}

// attention_lanes: rounds of the loops of a group that takes each of its rows again, for so many
// tiles of keys and fours of the heads' width. Rounds that only find a loop's end count too.
VKF_FUNCTION uint attention_redo_rounds(uint tiles, uint fours, uint lanes, uint blocks, uint rows) {
    uint once = 3u + fours + lanes;
    uint again = 3u + fours + blocks * lanes;
    uint storing = 40u;  // a row: four columns in each of four blocks, and ends
    return tiles * (once + rows * again) + rows * storing;
}

#ifdef __cplusplus
}  // namespace vkf::shader
#endif

// 32 words, which are all that Vulkan 1.1 guarantees: so what follows from other words, or from
// constants, is not here.
// clang-format off
VKF_PUSH_BEGIN(AttentionPush)
    uint head_dim;     // columns of Q and K
    uint value_dim;    // columns of V and O
    uint queries;      // queries of a batch of Q
    uint keys;         // keys of a batch: columns of its scores
    uint kv_heads;
    uint sequences;    // sequences in the table, where they are packed: in a batch of one
    uint q_batch;      // 0 where queries are packed
    uint q_head;
    uint q_row;
    uint q_offset;
    uint k_batch;      // 0 where keys are packed
    uint k_page;       // stride of pages, used instead of k_batch where keys lie in a pool
    uint k_head;
    uint k_row;
    uint k_offset;
    uint v_batch;      // 0 where values are packed
    uint v_page;
    uint v_head;
    uint v_row;
    uint v_offset;
    uint o_batch;      // 0 where queries are packed
    uint o_row;        // stride of rows; within one, heads lie side by side
    uint o_offset;
    float scale;
    float softcap;
    // causal: a query sees itself and the window - 1 keys before it; 0: all before it
    uint window;
    uint pages;        // pages in the pool
    uint ring_rows;
    uint ring_first;   // the row of key 0
    uint seed;         // dropout
VKF_PUSH_END(AttentionPush)
// clang-format on

#endif
