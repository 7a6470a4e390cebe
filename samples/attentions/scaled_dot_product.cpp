// SPDX-License-Identifier: Apache-2.0
// scaled_dot_product_attention: its definition, and which keys a query sees.
#include <cmath>

#include "example.h"

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQueries = 6, kKeys = 10, kHeadDim = 16;

struct Qkv {
    Value query, key, value;
};

Qkv inputs(Graph& g) {
    return {g.input("query", {kBatch, kHeads, kQueries, kHeadDim}), g.input("key", {kBatch, kKvHeads, kKeys, kHeadDim}),
            g.input("value", {kBatch, kKvHeads, kKeys, kHeadDim})};
}

AttentionResult attend(const Qkv& x, const AttentionOptions& o = {}) {
    return scaled_dot_product_attention(x.query, x.key, x.value, o);
}

/// The first `keys` keys of one sequence of the batch.
Qkv part(const Qkv& x, std::int64_t sequence, std::int64_t keys) {
    const auto one = [&](Value v) { return slice(v, 0, sequence, 1); };
    return {one(x.query), slice(one(x.key), 2, 0, keys), slice(one(x.value), 2, 0, keys)};
}

/// Repeats each key/value head for every query head that shares it.
Value repeat_heads(Value x) { return transpose(repeat_kv(transpose(x, 1, 2), kHeads / kKvHeads), 1, 2); }

void definition(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const AttentionResult a = attend(x, {.log_sum_exp = true});
    // 1/sqrt(16)
    const Value scores = matmul(x.query, repeat_heads(x.key), {.scale = 0.25f, .transpose_b = true});
    give("y", a.y);
    give("weights", a.weights);
    give("lse", a.log_sum_exp);
    give("want", matmul(softmax(scores), repeat_heads(x.value)));
    give("want_lse", log_sum_exp(scores));
    give("copied", attend(x, {.repeat_kv = true}));
    Tensors r = e.run(g);
    e.close("y = softmax(q k^T / sqrt(d)) v", r["y"], r["want"]);
    e.close("log_sum_exp = log(sum(exp(scores)))", r["lse"], r["want_lse"]);
    Floats sums;
    for (std::size_t row = 0; row < r["weights"].size(); row += kKeys) {
        sums.push_back(0);
        for (std::size_t key = 0; key < kKeys; ++key) {
            sums.back() += r["weights"][row + key];
        }
    }
    e.close("weights of a row add up to 1", sums, Floats(sums.size(), 1.0f));
    e.same("enable_gqa: kv heads shared by index = each copied for its queries", r["y"], r["copied"]);
}

void padding(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const Value mask = g.input("mask", {kBatch, 1, 1, kKeys}, DType::i32);
    const Value bias = g.input("bias", {kBatch, 1, 1, kKeys});
    const AttentionResult a = attend(x, {.mask = {.keys = mask}});
    give("first", slice(a.y, 0, 0, 1));
    give("second", slice(a.y, 0, 1, 1));
    give("first 7 keys", attend(part(x, 0, 7)));
    give("first 4 keys", attend(part(x, 1, 4)));
    give("y", a.y);
    give("biased", attend(x, {.mask = {.bias = bias}}));
    Given given{.integers = {{"mask", {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}}}};
    for (const std::int32_t seen : given.integers["mask"]) {
        given.floats["bias"].push_back(seen != 0 ? 0.0f : -INFINITY);
    }
    Tensors plain = e.run(g, given);
    e.close("attn_mask, float, of 0 and -inf = boolean", plain["biased"], plain["y"]);
    for (const char* name : {"key", "value"}) {  // what is masked may be anything
        Floats& rows = given.floats[name] = numbers(name, kBatch * kKvHeads * kKeys * kHeadDim);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::size_t batch = i / (kKvHeads * kKeys * kHeadDim), key = i / kHeadDim % kKeys;
            rows[i] = given.integers["mask"][batch * kKeys + key] != 0 ? rows[i] : NAN;
        }
    }
    Tensors r = e.run(g, given);
    e.close("attn_mask, boolean: 7 keys of 10, NaN in the others = 7 keys", r["first"], r["first 7 keys"]);
    e.close("the second sequence: 4 keys of 10 = 4 keys", r["second"], r["first 4 keys"]);
}

void causal(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const Value top = attend(x, {.mask = {.causal = Causal::top_left}});
    const Value bottom = attend(x, {.mask = {.causal = Causal::bottom_right}});
    const Value own = attend(x, {.mask = {.causal = Causal::bottom_right, .window = 1}});
    give("top, first", slice(top, 2, 0, 1));
    give("first value", slice(repeat_heads(x.value), 2, 0, 1));
    give("bottom", bottom);
    give("bottom, last", slice(bottom, 2, kQueries - 1, 1));
    give("all, last", slice(attend(x), 2, kQueries - 1, 1));
    give("window", attend(x, {.mask = {.causal = Causal::bottom_right, .window = kKeys}}));
    give("own", own);
    give("own value", slice(repeat_heads(x.value), 2, kKeys - kQueries, kQueries));
    Tensors r = e.run(g);
    e.close("is_causal, top-left: the first query sees the first key alone", r["top, first"], r["first value"]);
    e.close("causal behind a cache, bottom-right: the last query sees every key", r["bottom, last"], r["all, last"]);
    e.close("sliding window as wide as all = causal", r["window"], r["bottom"]);
    e.close("sliding window of 1: each token sees itself, y = v", r["own"], r["own value"]);
}

/// StreamingLLM (Xiao et al. 2024): the first 2 tokens stay beside a window of 3.
void first_tokens(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const AttentionResult a = attend(x, {.mask = {.keys = g.input("mask", {kQueries, kKeys}, DType::i32)}});
    give("weights", a.weights);
    Integers mask;
    for (std::int64_t query = kKeys - kQueries; query < kKeys; ++query) {
        for (std::int64_t key = 0; key < kKeys; ++key) {
            mask.push_back(key < 2 || (key <= query && key > query - 3) ? 1 : 0);
        }
    }
    const Floats weights = e.run(g, {.integers = {{"mask", mask}}})["weights"];
    bool right = true;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        right = right && (weights[i] > 0) == (mask[i % mask.size()] != 0);
    }
    e.holds("first tokens beside a window: weights above 0 at these 5 keys, and nowhere else", right);
}

void no_key(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const Value nothing = g.input("mask", {1}, DType::i32);
    const AttentionResult a = attend(x, {.mask = {.keys = nothing}, .log_sum_exp = true});
    give("y", a.y);
    give("lse", a.log_sum_exp);
    give("filled", attend(x, {.mask = {.keys = nothing, .fill = -1e20f}}).weights);
    Tensors r = e.run(g, {.integers = {{"mask", {0}}}});
    e.same("a row with no key left gives 0", r["y"], Floats(r["y"].size(), 0.0f));
    e.same("its log_sum_exp is -inf", r["lse"], Floats(r["lse"].size(), -INFINITY));
    e.close("masked_fill with a finite number: uniform weights", r["filled"],
            Floats(r["filled"].size(), 1.0f / static_cast<float>(kKeys)));
}

/// 160 tokens of two documents, each seeing its own: tiles of the mask without a set bit are passed
/// over.
void blocks(Examples& e) {
    constexpr std::int64_t kTokens = 160, kFirst = 96;
    Graph g;
    const Shape shape{1, 2, kTokens, kHeadDim};
    const Qkv x{g.input("query", shape), g.input("key", shape), g.input("value", shape)};
    const Value both = attend(x, {.mask = {.keys = g.input("mask", {kTokens, kTokens}, DType::i32)}});
    const auto document = [&](std::int64_t at, std::int64_t count) {
        const auto rows = [&](Value v) { return slice(v, 2, at, count); };
        return attend({rows(x.query), rows(x.key), rows(x.value)});
    };
    give("y", both);
    give("want", concat({document(0, kFirst), document(kFirst, kTokens - kFirst)}, 2));
    Integers mask;
    for (std::int64_t query = 0; query < kTokens; ++query) {
        for (std::int64_t key = 0; key < kTokens; ++key) {
            mask.push_back((query < kFirst) == (key < kFirst) ? 1 : 0);
        }
    }
    Tensors r = e.run(g, {.integers = {{"mask", mask}}});
    e.close("block mask of two documents = each document alone", r["y"], r["want"]);
}

}  // namespace

void scaled_dot_product(Examples& e) {
    e.family("scaled_dot_product_attention");
    definition(e);
    padding(e);
    causal(e);
    first_tokens(e);
    no_key(e);
    blocks(e);
}
