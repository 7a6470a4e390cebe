// SPDX-License-Identifier: Apache-2.0
// Attention over sequences of different lengths: packed behind each other without padding, or with
// keys and values in pages that sequences may share.
#pragma once

#include "attention.h"

namespace vkf {

/// Attention over N sequences behind each other, none padded: query (T, H, d), key (S, Hk, d),
/// value (S, Hk, dv). Sequence i has the queries cumulative_queries[i] .. cumulative_queries[i+1]-1
/// and the keys that cumulative_keys says, both (N+1) i32 that grow from 0 to T and S. A query sees
/// keys of its own sequence alone; causal, window and ALiBi count within it. y (T, H, dv),
/// log_sum_exp (1, H, T), no weights. Queries that belong to no sequence give 0.
/// flash_attn_varlen_func; torch.nn.attention.varlen. The mask may be causal, with a window, and
/// ALiBi; other masks and biases are refused. ALiBi and score mods need a device with 12 storage
/// buffers a stage.
VKF_API AttentionResult packed_attention(Value query, Value key, Value value, Value cumulative_queries,
                                         Value cumulative_keys, const AttentionOptions& options = {});

/// Keys and values in a pool of pages (Kwon et al. 2023, PagedAttention). A page that several
/// tables name is there once.
struct PagedKvCache {
    Value key, value;  ///< states (P, page size, Hk, d) and (P, page size, Hk, dv)
    /// (B, W) i32: row b names the pages of sequence b in order; -1 where it has none yet
    Value table;
    Value lengths;  ///< (B) i32: tokens of each sequence, those of this run included
};

/// Writes key and value (B, L, Hk, d) as the last L tokens of each sequence. Returns the cache as
/// it is after the write.
VKF_API PagedKvCache append(const PagedKvCache& cache, Value key, Value value);

/// Attention of query (B, H, L, d), the last L tokens of each sequence, over all tokens of the
/// sequence. y (B, H, L, dv). A causal mask is bottom-right, by each sequence's own length. Of a
/// length beyond the sequence's pages, all rows of these are seen; keys of a page outside the pool
/// are NaN. Masks broadcast to (B, H, L, W * page size). ALiBi needs a device with 12 storage
/// buffers a stage.
VKF_API AttentionResult paged_attention(Value query, const PagedKvCache& cache, const AttentionOptions& options = {});

}  // namespace vkf
