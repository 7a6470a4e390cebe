// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences.h"

#include <cmath>

#include "layers/composed_attention.h"

namespace vkf {

namespace {

/// (T, H, d) -> (1, H, T, d).
Value heads_first(const char* op, Value x) {
    if (x.rank() != 3) {
        throw Error(x.str() + " must be (tokens, heads, head_dim)", op);
    }
    return reshape(transpose(x, 0, 1), {1, x.size(1), x.size(0), x.size(2)});
}

SoftmaxOptions softmax_options(const Value& query, const AttentionOptions& o) {
    const Dim& d = query.size(-1);
    const float scale =
        o.scale != 0.0f ? o.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(d.constant())));
    return {o.mask, scale, o.softcap, o.sinks};
}

FusedAttentionOptions fused_options(const Value& query, const AttentionOptions& o) {
    return {.scores = softmax_options(query, o),
            .dropout = o.dropout,
            .dropout_seed = o.dropout_seed,
            .log_sum_exp = o.log_sum_exp,
            .score_mod = o.score_mod};
}

/// The composed way, whose mask says all that causal and window do.
AttentionResult with_mask(Value q, Value k, Value v, Value mask, const AttentionOptions& o) {
    AttentionOptions masked = o;
    masked.mask.causal = Causal::none;
    masked.mask.window = 0;
    masked.mask.keys = o.mask.keys ? combine_masks(mask, Polarity::attend, o.mask.keys, o.mask.polarity) : mask;
    masked.mask.polarity = Polarity::attend;
    return composed_attention(q, k, v, softmax_options(q, masked), masked);
}

std::string not_cumulative(std::span<const std::int32_t> numbers, std::int64_t limit) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int32_t before = i == 0 ? 0 : numbers[i - 1];
        if (numbers[i] < before || numbers[i] > limit || (i == 0 && numbers[i] != 0)) {
            return "number " + std::to_string(i) + " is " + std::to_string(numbers[i]) +
                   ": they must grow from 0 to at most " + std::to_string(limit) + ", and the one before is " +
                   std::to_string(before);
        }
    }
    return {};
}

std::string not_lengths(std::span<const std::int32_t> numbers, std::int64_t limit) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] < 0 || numbers[i] > limit) {
            return "length " + std::to_string(i) + " is " + std::to_string(numbers[i]) + ", not in 0.." +
                   std::to_string(limit);
        }
    }
    return {};
}

std::string not_pages(std::span<const std::int32_t> numbers, std::int64_t limit) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] < -1 || numbers[i] >= limit) {
            return "entry " + std::to_string(i) + " is " + std::to_string(numbers[i]) + ", not in -1.." +
                   std::to_string(limit - 1);
        }
    }
    return {};
}

}  // namespace

AttentionResult packed_attention(Value query, Value key, Value value, Value cumulative_queries, Value cumulative_keys,
                                 const AttentionOptions& o) {
    constexpr const char* kName = "packed_attention";
    Graph& g = query.graph();
    const Value q = heads_first(kName, query);
    const Value k = heads_first(kName, key);
    const Value v = heads_first(kName, value);
    FusedAttentionOptions options = fused_options(q, o);
    options.cumulative_queries = cumulative_queries;
    options.cumulative_keys = cumulative_keys;
    FusedAttention fused = fused_attention(q, k, v, options);
    g.check_content(cumulative_queries, "cumulative_queries", q.size(2), not_cumulative);
    g.check_content(cumulative_keys, "cumulative_keys", k.size(2), not_cumulative);
    if (!o.mask.alibi_slopes &&
        !o.score_mod) {  // whose positions the composed way would have to count anew for each sequence
        const Value mask = sequence_mask(q, k, cumulative_queries, cumulative_keys, o.mask.causal, o.mask.window);
        const AttentionResult composed = with_mask(q, k, v, mask, o);
        fused.y = g.prefer(fused.y, composed.y);
        fused.log_sum_exp = o.log_sum_exp ? g.prefer(fused.log_sum_exp, composed.log_sum_exp) : Value();
    }
    return {reshape(transpose(fused.y, 1, 2), {query.size(0), query.size(1), value.size(2)}), {}, fused.log_sum_exp};
}

PagedKvCache append(const PagedKvCache& cache, Value key, Value value) {
    return {scatter_pages(cache.key, key, cache.table, cache.lengths),
            scatter_pages(cache.value, value, cache.table, cache.lengths), cache.table, cache.lengths};
}

AttentionResult paged_attention(Value query, const PagedKvCache& cache, const AttentionOptions& o) {
    Graph& g = query.graph();
    FusedAttentionOptions options = fused_options(query, o);
    options.key_lengths = cache.lengths;
    options.pages = cache.table;
    FusedAttention fused = fused_attention(query, transpose(cache.key, 1, 2), transpose(cache.value, 1, 2), options);
    g.check_content(cache.lengths, "lengths", cache.table.size(1) * cache.key.size(1), not_lengths);
    g.check_content(cache.table, "table", cache.key.size(0), not_pages);
    if (!o.mask.alibi_slopes) {
        const Value k = transpose(gather_pages(cache.key, cache.table), 1, 2);
        const Value v = transpose(gather_pages(cache.value, cache.table), 1, 2);
        const Value mask = sequence_mask(query, k, {}, cache.lengths, o.mask.causal, o.mask.window);
        const AttentionResult composed =
            with_mask(query, k, v, reshape(mask, {mask.size(0), 1, mask.size(1), mask.size(2)}), o);
        fused.y = g.prefer(fused.y, composed.y);
        fused.log_sum_exp = o.log_sum_exp ? g.prefer(fused.log_sum_exp, composed.log_sum_exp) : Value();
    }
    return {fused.y, {}, fused.log_sum_exp};
}

}  // namespace vkf
