// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences.h"

#include "layers/checks.h"
#include "ops/checks.h"
#include "runtime/graph/edit.h"

namespace vkf {

namespace {

/// (T, H, d) -> (1, H, T, d).
Value heads_first(const char* op, Value x) {
    if (x.rank() != 3) {
        throw Error(x.str() + " must be (tokens, heads, head_dim)", op);
    }
    return reshape(transpose(x, 0, 1), {1, x.size(1), x.size(0), x.size(2)});
}

}  // namespace

AttentionResult packed_attention(Value query, Value key, Value value, Value cumulative_queries, Value cumulative_keys,
                                 const AttentionOptions& options) {
    constexpr const char* kName = "packed_attention";
    const Value q = heads_first(kName, query);
    const Value k = heads_first(kName, key);
    const Value v = heads_first(kName, value);
    support::require(bool(cumulative_queries), kName, "there are no cumulative_queries, over " + query.str());
    AttentionOptions sequences = options;
    sequences.cumulative_queries = cumulative_queries;
    sequences.cumulative_keys = cumulative_keys;
    const AttentionResult a = scaled_dot_product_attention(q, k, v, sequences);
    return {reshape(transpose(a.y, 1, 2), {query.size(0), query.size(1), a.y.size(3)}), {}, a.log_sum_exp};
}

PagedKvCache append(const PagedKvCache& cache, Value key, Value value) {
    check_appended(key, value);
    check_one_graph("append", key, {cache.key, cache.value, cache.table, cache.lengths});
    // nothing is written where one of the two does not fit
    const GraphEdit::Addition addition(key.graph());
    return {scatter_pages(cache.key, key, cache.table, cache.lengths),
            scatter_pages(cache.value, value, cache.table, cache.lengths), cache.table, cache.lengths};
}

AttentionResult paged_attention(Value query, const PagedKvCache& cache, const AttentionOptions& options) {
    support::require(bool(cache.table), "paged_attention", "the cache has no table, over " + query.str());
    AttentionOptions paged = options;
    paged.key_lengths = cache.lengths;
    paged.pages = cache.table;
    const AttentionResult a =
        scaled_dot_product_attention(query, transpose(cache.key, 1, 2), transpose(cache.value, 1, 2), paged);
    return {a.y, {}, a.log_sum_exp};
}

}  // namespace vkf
