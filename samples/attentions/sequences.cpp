// SPDX-License-Identifier: Apache-2.0
// Sequences of different lengths: packed without padding, or with keys and values in pages.
#include "example.h"

namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16;

/// (T, H, d) -> tokens at .. at+count-1, heads first: (1, H, count, d).
Value tokens(Value x, std::int64_t at, std::int64_t count) {
    const Value rows = slice(x, 0, at, count);
    return transpose(reshape(rows, {1, count, x.size(1), x.size(2)}), 1, 2);
}

void packed(Examples& e) {
    Graph g;
    const Value q = g.input("query", {6, kHeads, kHeadDim});
    const Value k = g.input("key", {10, kKvHeads, kHeadDim});
    const Value v = g.input("value", {10, kKvHeads, kHeadDim});
    const Value queries = g.input("cumulative_queries", {3}, DType::i32);
    const Value keys = g.input("cumulative_keys", {3}, DType::i32);
    const AttentionOptions causal{.mask = {.causal = Causal::bottom_right}};
    give("y", packed_attention(q, k, v, queries, keys, causal));
    const auto alone = [&](std::int64_t query, std::int64_t n, std::int64_t key, std::int64_t m) {
        const Value y = scaled_dot_product_attention(tokens(q, query, n), tokens(k, key, m), tokens(v, key, m), causal);
        return merge_heads(y);
    };
    give("want", concat({alone(0, 2, 0, 5), alone(2, 4, 5, 5)}, 1));
    Tensors r = e.run(g, {.integers = {{"cumulative_queries", {0, 2, 6}}, {"cumulative_keys", {0, 5, 10}}}});
    e.close("packed_attention of 2 and 4 queries, causal = each sequence alone", r["y"], r["want"]);
}

/// Two sequences of 7 and 11 tokens in pages of 4; the first page is the same for both, and there
/// once.
void paged(Examples& e) {
    Graph g;
    const Shape pool{5, 4, kKvHeads, kHeadDim};
    const PagedKvCache cache{g.input("key pages", pool), g.input("value pages", pool),
                             g.input("table", {2, 3}, DType::i32), g.input("lengths", {2}, DType::i32)};
    const Value q = g.input("query", {2, kHeads, 1, kHeadDim});
    give("y", paged_attention(q, cache));
    const auto contiguous_rows = [&](Value pages, const std::vector<std::int64_t>& order, std::int64_t length) {
        std::vector<Value> parts;
        for (const std::int64_t page : order) {
            parts.push_back(slice(pages, 0, page, 1));
        }
        return transpose(slice(concat(parts, 1), 1, 0, length), 1, 2);
    };
    const auto alone = [&](std::int64_t i, const std::vector<std::int64_t>& order, std::int64_t length) {
        return scaled_dot_product_attention(slice(q, 0, i, 1), contiguous_rows(cache.key, order, length),
                                            contiguous_rows(cache.value, order, length));
    };
    give("want", concat({alone(0, {0, 1}, 7), alone(1, {0, 4, 3}, 11)}, 0));
    Tensors r = e.run(g, {.integers = {{"table", {0, 1, -1, 0, 4, 3}}, {"lengths", {7, 11}}}});
    e.close("paged_attention, the first page shared = contiguous keys and values", r["y"], r["want"]);
}

/// The pool is a state that each run writes its newest tokens into: 3 tokens at first, then one.
void paged_steps(Examples& e) {
    Graph g;
    const Dim count = g.symbol("tokens", 4);
    const Shape pool{2, 4, kKvHeads, kHeadDim};
    const PagedKvCache cache{g.state("key pages", pool), g.state("value pages", pool),
                             g.input("table", {1, 2}, DType::i32), g.input("lengths", {1}, DType::i32)};
    const Value q = g.input("query", {1, count, kHeads, kHeadDim});
    const Value k = g.input("key", {1, count, kKvHeads, kHeadDim});
    const Value v = g.input("value", {1, count, kKvHeads, kHeadDim});
    const AttentionOptions causal{.mask = {.causal = Causal::bottom_right}};
    g.output("y", merge_heads(paged_attention(transpose(q, 1, 2), append(cache, k, v), causal).y));
    Program p = e.compile(g);
    const auto run = [&](std::int32_t start, std::int64_t n) {
        p.set("tokens", n);
        const auto rows = [&](const char* name, std::int64_t heads) {
            const Floats all = numbers(name, static_cast<std::size_t>(4 * heads * kHeadDim));
            return columns(all, all.size(), static_cast<std::size_t>(start * heads * kHeadDim),
                           static_cast<std::size_t>(n * heads * kHeadDim));
        };
        p.upload("query", rows("query", kHeads));
        p.upload("key", rows("key", kKvHeads));
        p.upload("value", rows("value", kKvHeads));
        p.upload("table", Integers{1, 0});
        p.upload("lengths", Integers{start + static_cast<std::int32_t>(n)});
        p.run();
        return p.download("y");
    };
    const Floats whole = run(0, 4);
    run(0, 3);
    const Floats last = run(3, 1);
    e.close("append: 3 tokens, then 1 = 4 at once", last, columns(whole, whole.size(), 3 * last.size(), last.size()));
}

}  // namespace

void sequences(Examples& e) {
    e.family("packed sequences and pages");
    packed(e);
    paged(e);
    paged_steps(e);
}
