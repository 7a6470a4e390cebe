// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences.h"

namespace vkf {

namespace {

/// (T, H, d) -> (1, H, T, d).
Value heads_first(const char* op, Value x) {
    if (x.rank() != 3) {
        throw Error(x.str() + " must be (tokens, heads, head_dim)", op);
    }
    return reshape(transpose(x, 0, 1), {1, x.size(1), x.size(0), x.size(2)});
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
                                 const AttentionOptions& options) {
    constexpr const char* kName = "packed_attention";
    Graph& g = query.graph();
    const Value q = heads_first(kName, query);
    const Value k = heads_first(kName, key);
    const Value v = heads_first(kName, value);
    AttentionOptions sequences = options;
    sequences.cumulative_queries = cumulative_queries;
    sequences.cumulative_keys = cumulative_keys;
    const AttentionResult a = scaled_dot_product_attention(q, k, v, sequences);
    g.check_content(cumulative_queries, "cumulative_queries", q.size(2), not_cumulative);
    g.check_content(cumulative_keys, "cumulative_keys", k.size(2), not_cumulative);
    return {reshape(transpose(a.y, 1, 2), {query.size(0), query.size(1), a.y.size(3)}), {}, a.log_sum_exp};
}

PagedKvCache append(const PagedKvCache& cache, Value key, Value value) {
    return {scatter_pages(cache.key, key, cache.table, cache.lengths),
            scatter_pages(cache.value, value, cache.table, cache.lengths), cache.table, cache.lengths};
}

AttentionResult paged_attention(Value query, const PagedKvCache& cache, const AttentionOptions& options) {
    Graph& g = query.graph();
    AttentionOptions paged = options;
    paged.key_lengths = cache.lengths;
    paged.pages = cache.table;
    const AttentionResult a =
        scaled_dot_product_attention(query, transpose(cache.key, 1, 2), transpose(cache.value, 1, 2), paged);
    g.check_content(cache.lengths, "lengths", cache.table.size(1) * cache.key.size(1), not_lengths);
    g.check_content(cache.table, "table", cache.key.size(0), not_pages);
    return {a.y, {}, a.log_sum_exp};
}

}  // namespace vkf
