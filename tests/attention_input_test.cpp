// SPDX-License-Identifier: Apache-2.0
// What attention refuses, and what it says then: at the description where sizes are known, else
// before anything is dispatched.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "layers/attention.h"
#include "layers/torch.h"
#include "tests/device.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// A graph with query (2, 6, 5, 8), key (2, 3, 7, 8) and value (2, 3, 7, 4).
struct Described {
    Graph g;
    Value q = g.input("q", {2, 6, 5, 8}), k = g.input("k", {2, 3, 7, 8}), v = g.input("v", {2, 3, 7, 4});

    std::string refusal(const AttentionOptions& options) {
        return error_of([&] { scaled_dot_product_attention(q, k, v, options); });
    }
    std::string of_mask(const Shape& shape, DType dtype = DType::i32) {
        return refusal({.mask = {.keys = g.input("mask " + std::to_string(++made_), shape, dtype)}});
    }
    std::string of_bias(const Shape& shape, DType dtype = DType::f32) {
        return refusal({.mask = {.bias = g.input("bias " + std::to_string(++made_), shape, dtype)}});
    }

private:
    int made_ = 0;
};

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE("attention: masks that do not broadcast are named with their sizes") {
    Described d;
    CHECK(contains(d.of_mask({6}), "mask 1 (6)"));
    CHECK(contains(d.of_mask({6}), "6 against 7"));
    CHECK(contains(d.of_mask({4, 7}), "4 against 5"));
    CHECK(contains(d.of_mask({2, 3, 5, 7}), "3 against 6"));
    CHECK(contains(d.of_mask({3, 1, 1, 7}), "3 against 2"));
    CHECK(contains(d.of_mask({1, 2, 6, 5, 7}), "(1, 2, 6, 5, 7)"));
    CHECK(contains(d.of_mask({5, 7}, DType::f32), "must be I32"));
    CHECK(contains(d.of_bias({5, 6}), "6 against 7"));
    CHECK(contains(d.of_bias({5, 7}, DType::i32), "must be F32"));
    CHECK(contains(d.refusal({.mask = {.alibi_slopes = d.g.input("slopes", {3})}}), "3 against 6"));
    CHECK(contains(d.refusal({.sinks = d.g.input("sinks", {5})}), "5 against 6"));
    CHECK(contains(d.refusal({.sinks = d.g.input("sinks by key", {1, 1, 7})}), "have a number a key"));
    CHECK(d.refusal({.sinks = d.g.input("sinks by query", {5, 1})}) == "");
    for (const Shape& good : {Shape{7}, Shape{1}, Shape{5, 1}, Shape{6, 1, 7}, Shape{2, 1, 1, 7}}) {
        CHECK(d.of_mask(good) == "");
        CHECK(d.of_bias(good) == "");
    }
}

TEST_CASE("attention: numbers out of range are named") {
    Described d;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(d.refusal({.mask = {.window = 3}}), "window = 3 needs a causal mask"));
    CHECK(contains(d.refusal({.mask = {.causal = Causal::top_left, .window = -1}}), "window = -1"));
    CHECK(contains(d.refusal({.mask = {.fill = nan}}), "fill"));
    CHECK(contains(d.refusal({.mask = {.fill = 1.0f}}), "fill"));
    CHECK(contains(d.refusal({.scale = nan}), "scale"));
    CHECK(contains(d.refusal({.scale = INFINITY}), "scale"));
    CHECK(contains(d.refusal({.softcap = -1}), "softcap"));
    CHECK(contains(d.refusal({.softcap = nan}), "softcap"));
}

TEST_CASE("attention: operands that do not fit are named") {
    Described d;
    const auto refusal = [&](const Shape& key, const Shape& value) {
        static int made = 0;
        const std::string number = std::to_string(++made);
        return error_of([&] {
            scaled_dot_product_attention(d.q, d.g.input("key " + number, key), d.g.input("value " + number, value));
        });
    };
    CHECK(contains(refusal({2, 4, 7, 8}, {2, 4, 7, 4}), "head counts"));
    CHECK(contains(refusal({2, 12, 7, 8}, {2, 12, 7, 4}), "head counts"));
    CHECK(contains(refusal({3, 3, 7, 8}, {3, 3, 7, 4}), "batches"));
    CHECK(contains(refusal({2, 3, 7, 9}, {2, 3, 7, 4}), "head sizes"));
    CHECK(contains(refusal({2, 3, 7, 8}, {2, 3, 6, 4}), "keys and values"));
    CHECK(contains(refusal({2, 3, 7, 8}, {2, 1, 7, 4}), "keys and values"));
    CHECK(contains(refusal({3, 7, 8}, {3, 7, 4}), "ranks"));
    CHECK(contains(error_of([&] { split_heads(d.g.input("x", {2, 5, 10}), 3); }), "x (2, 5, 10)"));
}

TEST_CASE("attention: a cache that does not fit, and positions beyond it") {
    Graph g;
    const Dim start = g.symbol("start", 16);
    const Value x = g.input("x", {2, 3, 32});
    int made = 0;
    const auto refusal = [&](const Shape& key, const Shape& value, std::optional<Rope> rotary = {}) {
        const std::string number = std::to_string(++made);
        GroupedQueryAttentionOptions o{.name = "attn" + number, .heads = 4, .kv_heads = 2, .rope = rotary};
        o.cache = KvCache{g.state("k" + number, key), g.state("v" + number, value), start};
        return error_of([&] { grouped_query_attention(x, o); });
    };
    CHECK(contains(refusal({2, 16, 4, 8}, {2, 16, 4, 8}), "k1 (2, 3, 4, 8)"));
    CHECK(contains(refusal({1, 16, 2, 8}, {1, 16, 2, 8}), "(1, 16, 2, 8)"));
    CHECK(contains(refusal({2, 16, 2, 8}, {2, 16, 2, 6}), "6"));
    CHECK(contains(refusal({2, 16, 16}, {2, 16, 16}), "(batch, tokens, heads, head_dim)"));

    Graph steps;
    const Dim at = steps.symbol("start", 16);
    const Dim tokens = steps.symbol("tokens", 16);
    const CachedKv all = append({steps.state("k", {1, 16, 1, 4}), steps.state("v", {1, 16, 1, 4}), at},
                                steps.input("new k", {1, tokens, 1, 4}), steps.input("new v", {1, tokens, 1, 4}));
    steps.output(
        "y", contiguous(scaled_dot_product_attention(
                            rope(all.key, {.layout = RopeLayout::interleaved, .max_positions = 16}), all.key, all.value)
                            .y));
    Program p = device().compile(steps);
    const auto run = [&](std::int64_t from, std::int64_t count) {
        p.set("start", from);
        p.set("tokens", count);
        upload(p, "new k", random_tensor({1, count, 1, 4}));
        upload(p, "new v", random_tensor({1, count, 1, 4}));
        return error_of([&] { p.run(); });
    };
    CHECK(run(0, 16) == "");
    CHECK(contains(run(16, 1), "17 is more than 16"));
    CHECK(contains(run(3, 14), "17 is more than 16"));
    CHECK(run(15, 1) == "");
    CHECK(contains(error_of([&] { p.set("start", 17); }), "17"));
    CHECK(contains(error_of([&] { p.set("start", -1); }), "-1"));
}

TEST_CASE("grouped_query_attention: numbers that do not fit are named") {
    Graph g;
    const Value x = g.input("x", {1, 5, 24});
    int made = 0;
    const auto refusal = [&](GroupedQueryAttentionOptions o) {
        o.name = "refused" + std::to_string(++made);
        return error_of([&] { grouped_query_attention(x, o); });
    };
    CHECK(contains(refusal({.heads = 4, .kv_heads = 3}), "the heads do not divide into groups"));
    CHECK(contains(refusal({.heads = 2, .kv_heads = 4}), "the heads do not divide into groups"));
    CHECK(contains(refusal({.heads = 0}), "heads 0"));
    CHECK(contains(refusal({.heads = 4, .kv_heads = -2}), "kv_heads -2"));
    CHECK(contains(refusal({.heads = 5}), "give head_dim"));
    CHECK(contains(refusal({.heads = 4, .head_dim = -6}), "head_dim -6"));
    constexpr std::int64_t kHuge = std::int64_t{1} << 62;
    CHECK(contains(refusal({.heads = kHuge, .head_dim = 4}), "more columns than can be counted"));
    CHECK(contains(refusal({.heads = kHuge, .kv_heads = kHuge, .head_dim = 1, .fused_qkv = true}),
                   "more columns than can be counted"));
    CHECK(contains(refusal({.heads = 4, .mask = {.window = 2}}), "window = 2 needs a causal mask"));
    CHECK(contains(refusal({.heads = 8, .rope = Rope{.layout = RopeLayout::interleaved, .rotary_dim = 4}}),
                   "rotary_dim = 4"));
    CHECK(contains(refusal({.heads = 8, .rope = Rope{.layout = RopeLayout::interleaved}}), "rotary_dim = 3"));
    CHECK(contains(refusal({.heads = 4, .rope = Rope{.layout = RopeLayout::interleaved, .max_positions = 4}}), "4"));
}

TEST_CASE("torch: masks that do not fit, and is_causal where it says nothing") {
    Graph g;
    const Value x = g.input("x", {2, 5, 12});
    int made = 0;
    const auto refusal = [&](torch::MultiheadAttentionOptions o) {
        o.name = "attn" + std::to_string(++made);
        o.num_heads = o.num_heads == 1 ? 3 : o.num_heads;
        return error_of([&] { torch::multihead_attention(x, x, x, o); });
    };
    const auto mask = [&](const Shape& shape) { return g.input("mask " + std::to_string(++made), shape, DType::i32); };
    CHECK(contains(refusal({.attn_mask = mask({4, 5})}), "4 against 5"));
    for (const std::int64_t front : {2, 5}) {  // a batch, and what is nothing
        const std::string shape = "(" + std::to_string(front) + ", 5, 5)",
                          told = refusal({.attn_mask = mask({front, 5, 5})});
        CHECK(contains(told, "torch.nn.MultiheadAttention: attn_mask"));
        CHECK(contains(
            told,
            shape + " I32 over query x (2, 5, 12) F32 has neither 1 in front, nor heads, 3, nor batch times heads, 6"));
    }
    CHECK(contains(refusal({.num_heads = 2, .attn_mask = mask({3, 5, 5})}), "batch times heads, 4"));
    CHECK(contains(refusal({.num_heads = 2, .batch_first = false, .attn_mask = mask({4, 2, 2})}), "heads, 10"));
    CHECK(refusal({.attn_mask = mask({3, 5, 5})}) == "");  // of one sequence, for all
    CHECK(refusal({.attn_mask = mask({6, 5, 5})}) == "");
    CHECK(refusal({.attn_mask = mask({1, 5, 5})}) == "");
    CHECK(refusal({.attn_mask = mask({1, 3, 5, 5})}) == "");
    CHECK(refusal({.attn_mask = mask({})}) == "");
    CHECK(contains(refusal({.key_padding_mask = mask({2, 4})}), "4 against 5"));
    CHECK(contains(refusal({.key_padding_mask = mask({3, 5})}), "3 against 2"));
    CHECK(contains(refusal({.key_padding_mask = mask({5})}), "must be (batch, keys)"));
    CHECK(contains(refusal({.num_heads = 5}), "5"));
    CHECK(contains(refusal({.add_bias_kv = true, .is_causal = true}), "is_causal"));
    CHECK(contains(refusal({.add_zero_attn = true, .is_causal = true}), "is_causal"));
    CHECK(refusal({.attn_mask = mask({5, 5}), .is_causal = true}) == "");  // a key must pass both
}

TEST_CASE("torch: a mask of one number is over all keys but those that are appended") {
    const auto described = [&](Graph& g, torch::MultiheadAttentionOptions o, Shape mask) {
        o.num_heads = 2;
        o.attn_mask = g.input("mask", std::move(mask), DType::i32);
        g.output("y", torch::multihead_attention(g.input("x", {2, 3, 8}), g.input("k", {2, 5, 8}),
                                                 g.input("v", {2, 5, 8}), o));
    };
    for (const bool bias_kv : {false, true}) {
        for (const bool zero : {false, true}) {
            CAPTURE(bias_kv);
            CAPTURE(zero);
            const torch::MultiheadAttentionOptions o{.name = "a", .add_bias_kv = bias_kv, .add_zero_attn = zero};
            Graph scalar, full;
            described(scalar, o, {});
            described(full, o, {3, 5});
            const Weights weights = random_weights({&scalar, &full});
            std::vector<Tensor> results;
            for (const double ignored : {0.0, 1.0}) {
                for (Graph* g : {&scalar, &full}) {
                    Program p = device().compile(*g, weights);
                    Tensor mask(g == &scalar ? Sizes{} : Sizes{3, 5});
                    std::fill(mask.data.begin(), mask.data.end(), ignored);
                    upload(p, "mask", mask, DType::i32);
                    upload(p, "x", random_tensor({2, 3, 8}, 1));
                    upload(p, "k", random_tensor({2, 5, 8}, 2));
                    upload(p, "v", random_tensor({2, 5, 8}, 3));
                    p.run();
                    results.push_back(download(p, "y"));
                }
            }
            CHECK(difference(results[0], results[1]) == "");
            CHECK(difference(results[2], results[3]) == "");
            CHECK(difference(results[0], results[2]) != "");
        }
    }
}

TEST_CASE("torch: keys of another graph are refused, whatever their numbers are") {
    Graph g, other;
    const Value x = g.input("x", {2, 5, 12}), y = other.input("y", {2, 5, 12});
    CHECK(contains(error_of([&] { torch::multihead_attention(x, y, y, {.num_heads = 3}); }), "another graph"));
}

TEST_CASE("torch: a mask of each head goes with appended keys, and no cache with memory") {
    Graph g;
    const Dim batch = g.symbol("B", 3), keys = g.symbol("S", 7);
    const Value x = g.input("x", {batch, 5, 12}), memory = g.input("memory", {batch, keys, 12});
    torch::MultiheadAttentionOptions each{.num_heads = 2, .add_bias_kv = true, .add_zero_attn = true};
    each.attn_mask = g.input("mask", {batch * 2, 5, keys}, DType::i32);
    CHECK(torch::multihead_attention(x, memory, memory, each).weights.shape() == Shape{batch, 2, 5, keys + 2});
    torch::MultiheadAttentionOptions column{.name = "column", .num_heads = 2, .add_zero_attn = true};
    column.attn_mask = g.input("column", {5, 1}, DType::i32);
    column.key_padding_mask = g.input("padding column", {batch, 1}, DType::i32);
    CHECK(torch::multihead_attention(x, memory, memory, column).y.shape() == Shape{batch, 5, 12});
    torch::MultiheadAttentionOptions both{.name = "both", .num_heads = 2};
    both.memory = torch::project_memory(memory, "both", 2);
    both.cache = kv_cache(g, "cache", 3, 7, 2, 6, 0);
    CHECK(contains(error_of([&] { torch::multihead_attention(x, {}, {}, both); }), "a cache together with memory"));
}

TEST_SUITE_END();
