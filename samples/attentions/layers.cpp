// SPDX-License-Identifier: Apache-2.0
// Self-attention, multi-head attention, and incremental attention, with their weights.
#include "example.h"

namespace {

constexpr std::int64_t kBatch = 2, kTokens = 5, kWidth = 16, kHeads = 4, kHeadDim = kWidth / kHeads;
constexpr std::size_t kMatrix = kWidth * kWidth;

/// One after the other.
Floats joined(const std::vector<Floats>& parts) {
    Floats out;
    for (const Floats& part : parts) {
        out.insert(out.end(), part.begin(), part.end());
    }
    return out;
}

void self(Examples& e) {
    Graph g;
    const Value x = g.input("x", {kBatch, kTokens, kWidth});
    const AttentionResult a = self_attention(x, {.name = "plain"});
    give("y", a.y);
    give("fused", self_attention(x, {.name = "fused", .fused_qkv = true}));
    const Value inner = self_attention(x, {.name = "plain", .out_proj = false});
    give("projected", linear_layer(inner, "plain.out_proj", kWidth));
    const Value future = g.input("mask", {kTokens, kTokens}, DType::i32);
    const Value filled = softmax(matmul(x, x, {.transpose_b = true}), {.mask = {.keys = future, .fill = -1e20f}});
    const AttentionResult masked = self_attention(x, {.name = "plain", .mask = {.keys = future, .fill = -1e20f}});
    const AttentionResult causal = self_attention(x, {.name = "plain", .mask = {.causal = Causal::top_left}});
    give("masked", masked.y);
    give("causal", causal.y);
    give("dropped", dropout(filled, 0.5f, 3));
    give("filled", filled);

    Given given;
    std::vector<Floats> weights, biases;
    for (const std::string name : {"q_proj", "k_proj", "v_proj"}) {
        weights.push_back(numbers("plain." + name + ".weight", kMatrix));
        biases.push_back(numbers("plain." + name + ".bias", kWidth));
    }
    given.floats = {{"fused.qkv_proj.weight", joined(weights)},
                    {"fused.qkv_proj.bias", joined(biases)},
                    {"fused.out_proj.weight", numbers("plain.out_proj.weight", kMatrix)},
                    {"fused.out_proj.bias", numbers("plain.out_proj.bias", kWidth)}};
    for (std::int64_t query = 0; query < kTokens; ++query) {
        for (std::int64_t key = 0; key < kTokens; ++key) {
            given.integers["mask"].push_back(key <= query ? 1 : 0);
        }
    }
    Tensors r = e.run(g, given);
    e.close("self_attention: one fused qkv_proj = three projections", r["fused"], r["y"]);
    e.close("without out_proj, and a linear layer behind it", r["projected"], r["y"]);
    e.close("masked with a finite fill = causal, where each row has a key", r["masked"], r["causal"]);
    for (std::size_t i = 0; i < r["dropped"].size(); ++i) {
        r["filled"][i] = r["dropped"][i] == 0 ? 0.0f : 2 * r["filled"][i];
    }
    e.close("dropout of weights by half: 0, or twice the weight", r["dropped"], r["filled"]);
}

/// Rows h*d .. h*d+d-1 of the batched projections are head h's own.
Given weights_by_heads() {
    Given given;
    for (const std::string name : {"q_proj", "k_proj", "v_proj"}) {
        const Floats weight = numbers("batched." + name + ".weight", kMatrix);
        const Floats bias = numbers("batched." + name + ".bias", kWidth);
        for (std::size_t head = 0; head < kHeads; ++head) {
            const std::string own = "heads." + std::to_string(head) + "." + name;
            constexpr std::size_t kPart = kHeadDim * kWidth;
            given.floats["by_heads." + own + ".weight"] = columns(weight, kMatrix, head * kPart, kPart);
            given.floats["by_heads." + own + ".bias"] = columns(bias, kWidth, head * kHeadDim, kHeadDim);
        }
    }
    given.floats["by_heads.out_proj.weight"] = numbers("batched.out_proj.weight", kMatrix);
    given.floats["by_heads.out_proj.bias"] = numbers("batched.out_proj.bias", kWidth);
    return given;
}

void multi_head(Examples& e) {
    Graph g;
    const Value x = g.input("x", {kBatch, kTokens, kWidth});
    const Value key = g.input("key", {kBatch, 7, kWidth}), value = g.input("value", {kBatch, 7, kWidth});
    const MultiHeadAttentionOptions batched{.name = "batched", .heads = kHeads};
    const MultiHeadAttentionOptions by_heads{.name = "by_heads", .heads = kHeads};
    give("batched", multi_head_attention(x, x, x, batched));
    give("by heads", multi_head_attention_by_heads(x, x, x, by_heads));
    give("cross", multi_head_attention(x, key, value, batched));
    give("cross by heads", multi_head_attention_by_heads(x, key, value, by_heads));
    give("one head", multi_head_attention(x, x, x, {.name = "batched", .heads = 1}));
    give("self", self_attention(x, {.name = "batched"}));
    Tensors r = e.run(g, weights_by_heads());
    e.close("multi_head_attention_by_heads = multi_head_attention", r["by heads"], r["batched"]);
    e.close("the same with query, key and value from three sources", r["cross by heads"], r["cross"]);
    e.close("multi_head_attention of one head = self_attention", r["one head"], r["self"]);
}

/// One new token against 3 cached ones; `kv_heads` 1 is multi-query attention.
void incremental(Examples& e) {
    Graph g;
    const Value x = g.input("x", {kBatch, kWidth});
    const auto step = [&](const std::string& name, std::int64_t kv_heads) {
        const Value key = g.input(name + " key", {kBatch, kv_heads, 3, kHeadDim});
        const Value value = g.input(name + " value", {kBatch, kv_heads, 3, kHeadDim});
        const IncrementalAttentionOptions o{
            .name = name, .heads = kHeads, .kv_heads = kv_heads, .head_dim = kHeadDim, .scale = 1.0f};
        const IncrementalAttentionResult a = incremental_attention(x, x, key, value, o);
        give(name, a.y);
        give(name + " old", slice(a.cache_key, 2, 0, 3));
        give(name + " new", slice(a.cache_key, 2, 3, 1));
    };
    step("multi-head", kHeads);
    step("multi-query", 1);
    Given given;  // multi-head with the same key and value projections, and caches, for each head
    for (const char* name : {".k", ".v"}) {
        const Floats one = numbers(std::string("multi-query") + name, kWidth * kHeadDim);
        given.floats[std::string("multi-head") + name] = joined({one, one, one, one});
    }
    for (const char* name : {".q", ".o"}) {
        given.floats[std::string("multi-head") + name] =
            numbers(std::string("multi-query") + name, kHeads * kWidth * kHeadDim);
    }
    for (const char* name : {" key", " value"}) {
        const Floats both = numbers(std::string("multi-query") + name, kBatch * 3 * kHeadDim);
        const Floats a = columns(both, both.size(), 0, both.size() / 2);
        const Floats b = columns(both, both.size(), both.size() / 2, both.size() / 2);
        given.floats[std::string("multi-head") + name] = joined({a, a, a, a, b, b, b, b});
    }
    Tensors r = e.run(g, given);
    e.close("incremental_attention, multi-query = multi-head with one key and value", r["multi-query"],
            r["multi-head"]);
    e.same("the new cache holds the old one", r["multi-query old"], numbers("multi-query key", kBatch * 3 * kHeadDim));
    Graph h;  // and behind it the projection of the new token: x (B, E), k (1, E, d)
    give("key", matmul(h.input("x", {kBatch, kWidth}),
                       reshape(h.weight("multi-query.k", {1, kWidth, kHeadDim}), {kWidth, kHeadDim})));
    e.close("and behind it the new key", r["multi-query new"], e.run(h)["key"]);
}

}  // namespace

void layers(Examples& e) {
    e.family("self, multi-head, incremental and multi-query attention");
    self(e);
    multi_head(e);
    incremental(e);
}
