// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention. B batch, L queries, S keys, H heads, Hk key/value heads, d head
// size, dv value size.
#pragma once

#include <cstdint>
#include <optional>

#include "../runtime/graph/graph.h"
#include "mask.h"
#include "score_mod.h"

namespace vkf {

/// `count` rows of a ring of S, beginning at row `first`. The first `before_end` of them lie before
/// the ring's end, as many as do: the smaller of count and S - first. The others go on from row 0.
/// Another number is an Error of what takes the ring, or of a run that sets its symbols so.
struct RingRows {
    Dim first, before_end, count;
};

struct AttentionOptions {
    Mask mask = {};
    std::optional<float> scale = {};  ///< factor of the scores; unset: 1/sqrt(d)
    float softcap = 0.0f;             ///< c tanh(s / c) on the scaled score; 0: none
    /// f32 (H): one more logit a row without a key, see SoftmaxOptions
    Value sinks = {};
    float dropout = 0.0f;      ///< probability with which a weight is dropped, see dropout()
    Dim dropout_seed = 0;      ///< a number, or made of symbols, see dropout()
    bool log_sum_exp = false;  ///< also compute AttentionResult::log_sum_exp
    ScoreMod score_mod = {};   ///< changes the biased scores before they are masked
    /// Copy each kv head for every query head that shares it, instead of sharing it by index. The
    /// numbers stay the same.
    bool repeat_kv = false;
    /// The type that key and value are kept as: f32, f16, bf16 or int8. Where it is not f32, both
    /// are (B, Hk, S, words of a row) i32, as pack_into() writes them and append() to such a cache
    /// returns them. Pages cannot be packed.
    WeightType kv_type = WeightType::f32;
    std::int64_t value_dim = 0;  ///< dv, where values are packed; 0: d
    /// The rows that attention uses, oldest first, where key and value are rings of S rows. Masks
    /// then count the ring's rows as their S keys. Refused with sequences and pages.
    std::optional<RingRows> ring = {};
    /// (N+1) i32, growing from 0, for packed sequences. They lie behind each other along L in a
    /// batch of 1; the queries of sequence i begin at the i-th number. Mask::keys and Mask::bias
    /// are refused with packed sequences.
    Value cumulative_queries = {};
    /// The cumulative lengths of keys, along S.
    Value cumulative_keys = {};
    /// (B) i32: the number of keys of each sequence; they are the first of the S keys.
    Value key_lengths = {};
    /// (B, W) i32, with key_lengths: key and value are a pool of pages (P, Hk, page size, d), and
    /// row b names the pages of sequence b in order. A sequence that names a page outside the pool
    /// sees NaN there. Together with cumulative_queries: on devices with 12 storage buffers a
    /// stage.
    Value pages = {};
};

struct AttentionResult {
    Value y;
    /// The attention weights, as softmax() gives them: a masked one is -0.0. Empty for sequences of
    /// different lengths, and where there would be 2^32 weights or more. Where a program uses them,
    /// attention is composed of other ops, with the matrix of scores.
    Value weights;
    Value log_sum_exp = {};  ///< (B, H, L), where it was asked for

    operator Value() const { return y; }
};

/// softmax(q k^T scale + mask) v. query (B, H, L, d), key (B, Hk, S, d), value (B, Hk, S, dv), H a
/// multiple of Hk: query head h uses kv head h / (H/Hk). y (B, H, L, dv), stored so that
/// merge_heads(y) is free; weights (B, H, L, S). torch.nn.functional.scaled_dot_product_attention.
///
/// This is one op. Where a device can and gains by it, one kernel computes it without the matrix of
/// scores, and skips tiles of keys that no query of a tile may see. Elsewhere it is decomposed into
/// matmul(), softmax() and matmul(). explain() says which, and why.
VKF_API AttentionResult scaled_dot_product_attention(Value query, Value key, Value value,
                                                     const AttentionOptions& options = {});

}  // namespace vkf
