// SPDX-License-Identifier: Apache-2.0
// Attention layers, composed of ops. B batch, L queries, S keys, H heads, Hk key/value heads, d
// head size, E model width. Weights are found by name under the layer's `name` ("attn" +
// "q_proj.weight" -> "attn.q_proj.weight"). Where the graph is of several ranks (Graph::set_rank),
// heads are shared out: y is whole, and the weights and caches are those of the rank's heads.
#pragma once

#include <optional>
#include <string>

#include "../ops/ops.h"
#include "../ops/score_mod.h"
#include "attention_scores.h"
#include "kv_cache.h"
#include "linear.h"

namespace vkf {

// In a graph of several ranks (Graph::set_rank) the layers share their heads out, and take masks,
// slopes and sinks of all heads. Throw Error where there are fewer heads than ranks.

struct SelfAttentionOptions {
    std::string name = {};
    /// one qkv_proj (3E, E), rows q | k | v, instead of q_proj, k_proj, v_proj
    bool fused_qkv = false;
    bool out_proj = true;
    bool bias = true;
    Mask mask = {};  ///< broadcasts to (B, L, L)
};

/// One head over x (B, L, E). y (B, L, E), weights (B, L, L).
VKF_API AttentionResult self_attention(Value x, const SelfAttentionOptions& options = {});

struct MultiHeadAttentionOptions {
    std::string name = {};
    std::int64_t heads = 1;
    bool bias = true;
    Mask mask = {};  ///< broadcasts to (B, H, L, S)
};

/// Attention Is All You Need (Vaswani et al. 2017), 3.2.2: q_proj, k_proj, v_proj, out_proj, each
/// (E, E). query (B, L, E), key and value (B, S, E). y (B, L, E), weights (B, H, L, S).
VKF_API AttentionResult multi_head_attention(Value query, Value key, Value value,
                                             const MultiHeadAttentionOptions& options);

/// Computes the same numbers head by head: `name`.heads.I.q_proj, .k_proj and .v_proj (E/H, E) for
/// each head I, concatenated, then out_proj (E, E).
VKF_API Value multi_head_attention_by_heads(Value query, Value key, Value value,
                                            const MultiHeadAttentionOptions& options);

struct GroupedQueryAttentionOptions {
    std::string name = {};
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;  ///< heads: multi-head attention; 1: multi-query attention
    std::int64_t head_dim = 0;  ///< 0: E / heads
    std::optional<Rope> rope = {};
    /// A query sees everything before it. A mask of yours says anew whether and how it is causal.
    Mask mask = {.causal = Causal::bottom_right};
    bool bias = false;      ///< all four projections have a bias
    bool qkv_bias = false;  ///< the first three alone have a bias
    /// QK norm: an RMSNorm of each head's query and key before they turn, with q_norm.weight and
    /// k_norm.weight (head_dim). Unset: none.
    std::optional<float> qk_norm_eps = {};
    /// one projection names[0] ((heads + 2 kv_heads) * head_dim, E), rows q | k | v, instead of the
    /// first three
    bool fused_qkv = false;
    std::optional<float> scale = {};  ///< see AttentionOptions, as the next three
    float softcap = 0.0f;
    Value sinks = {};
    bool repeat_kv = false;
    /// keys and values of earlier runs; positions go on from cache->start
    std::optional<KvCache> cache = {};
    /// names of the projections' weights
    const char* names[4] = {"q_proj", "k_proj", "v_proj", "o_proj"};
};

/// Grouped-query attention (Ainslie et al. 2023) over x (B, L, E). y (B, L, E), weights (B, H, L,
/// S).
VKF_API AttentionResult grouped_query_attention(Value x, const GroupedQueryAttentionOptions& options);

struct IncrementalAttentionOptions {
    std::string name = {};
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;  ///< heads: multi-head; 1: multi-query (Shazeer 2019)
    std::int64_t head_dim = 1;
    std::optional<float> scale = {};  ///< factor of the scores; unset: 1/sqrt(d)
    Mask mask = {};                   ///< broadcasts to (B, H, 1, M+1)
};

struct IncrementalAttentionResult {
    Value y;
    Value cache_key, cache_value;
};

/// One new token against M cached ones (Shazeer 2019, "Fast Transformer Decoding"): x (B, E) gives
/// the query, context (B, E) the new key and value, appended to cache_key and cache_value (B, Hk,
/// M, d). Projections a head: q (H, E, d), k and v (Hk, E, d), o (H, E, d). y (B, E), caches (B,
/// Hk, M+1, d).
VKF_API IncrementalAttentionResult incremental_attention(Value x, Value context, Value cache_key, Value cache_value,
                                                         const IncrementalAttentionOptions& options);

}  // namespace vkf
