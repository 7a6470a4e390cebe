// SPDX-License-Identifier: Apache-2.0
// grouped_query_attention: with RoPE and a cache over several runs, its relatives, and attention of
// Hugging Face's models.
#include "example.h"

namespace {

constexpr std::int64_t kTokens = 7, kWidth = 32, kHeads = 4, kKvHeads = 2, kHeadDim = kWidth / kHeads;

/// `count` rows of x from row `at`.
Floats rows(const Floats& x, std::int64_t at, std::int64_t count) {
    return columns(x, x.size(), static_cast<std::size_t>(at * kWidth), static_cast<std::size_t>(count * kWidth));
}

/// A prompt of 4 tokens, then 3 steps of one, against all 7 at once. The cache has room for 2
/// sequences of 16 tokens.
void cached(Examples& e) {
    GroupedQueryAttentionOptions o{.name = "attn", .heads = kHeads, .kv_heads = kKvHeads};
    o.rope = Rope{.theta = 10000.0, .layout = RopeLayout::half, .max_positions = 16};
    Graph whole;
    give("y", grouped_query_attention(whole.input("x", {1, kTokens, kWidth}), o));
    const Floats want = e.run(whole)["y"];

    Graph g;
    const Dim tokens = g.symbol("tokens", 16), start = g.symbol("start", 15);
    const Shape cache{2, 16, kKvHeads, kHeadDim};
    o.cache = KvCache{g.state("key", cache), g.state("value", cache), start};
    g.output("y", grouped_query_attention(g.input("x", {1, tokens, kWidth}), o));
    Program p = e.compile(g);
    const Floats x = numbers("x", kTokens * kWidth);
    Floats y;
    for (std::int64_t at = 0; at < kTokens;) {
        const std::int64_t count = at == 0 ? 4 : 1;
        p.set("tokens", count);
        p.set("start", at);
        p.upload("x", rows(x, at, count));
        p.run();
        const Floats part = p.download("y");
        y.insert(y.end(), part.begin(), part.end());
        at += count;
    }
    e.close("with RoPE and a KV cache: a prompt of 4, then 3 steps = 7 tokens at once", y, want);
}

/// Repeats each kv head's rows of a projection, once for every query head of its group.
Floats repeated(const Floats& weight, std::int64_t kv_heads) {
    Floats out;
    const std::size_t part = kHeadDim * kWidth;
    for (std::size_t head = 0; head < kHeads; ++head) {
        const std::size_t kv = head / static_cast<std::size_t>(kHeads / kv_heads);
        out.insert(out.end(), weight.begin() + static_cast<std::ptrdiff_t>(kv * part),
                   weight.begin() + static_cast<std::ptrdiff_t>((kv + 1) * part));
    }
    return out;
}

void relatives(Examples& e) {
    for (const std::int64_t kv_heads : {kHeads, kKvHeads, std::int64_t{1}}) {
        Graph g;
        const Value x = g.input("x", {2, kTokens, kWidth});
        GroupedQueryAttentionOptions o{.name = "grouped", .heads = kHeads, .kv_heads = kv_heads};
        give("grouped", grouped_query_attention(x, o));
        o.repeat_kv = true;
        give("copied", grouped_query_attention(x, o));
        const Mask causal{.causal = Causal::top_left};
        give("mha", multi_head_attention(x, x, x, {.name = "mha", .heads = kHeads, .bias = false, .mask = causal}));
        Given given;
        const std::size_t kv_count = static_cast<std::size_t>(kv_heads * kHeadDim * kWidth);
        given.floats = {{"mha.q_proj.weight", numbers("grouped.q_proj.weight", kWidth * kWidth)},
                        {"mha.k_proj.weight", repeated(numbers("grouped.k_proj.weight", kv_count), kv_heads)},
                        {"mha.v_proj.weight", repeated(numbers("grouped.v_proj.weight", kv_count), kv_heads)},
                        {"mha.out_proj.weight", numbers("grouped.o_proj.weight", kWidth * kWidth)}};
        Tensors r = e.run(g, given);
        const std::string name = "kv_heads = " + std::to_string(kv_heads);
        e.close(name + " = multi-head attention with keys and values repeated", r["grouped"], r["mha"]);
        e.same(name + ", shared by index = copied by repeat_kv", r["grouped"], r["copied"]);
    }
}

/// PhiAttention: biases, its own name for the last projection, a quarter of each head turned.
void phi(Examples& e) {
    GroupedQueryAttentionOptions o{.name = "phi", .heads = kHeads, .kv_heads = kHeads, .bias = true};
    const Rope turn{.layout = RopeLayout::half, .rotary_dim = kHeadDim / 4, .max_positions = kTokens};
    o.rope = turn;
    o.names[3] = "dense";
    Graph g;
    const Value x = g.input("x", {1, kTokens, kWidth});
    give("y", grouped_query_attention(x, o));
    const auto heads = [&](const char* name) {
        return split_heads(linear_layer(x, std::string("phi.") + name, kWidth), kHeads);
    };
    const Value a = scaled_dot_product_attention(rope(heads("q_proj"), turn), rope(heads("k_proj"), turn),
                                                 heads("v_proj"), {.mask = {.causal = Causal::top_left}});
    give("want", linear_layer(merge_heads(a), "phi.dense", kWidth));
    Tensors r = e.run(g);
    e.close("PhiAttention: .bias, .names[3] = \"dense\", partial rotary = its parts", r["y"], r["want"]);
}

/// Gemma 2's and gpt-oss' options: a head size of its own, scale, softcap, sinks, a sliding window.
void others(Examples& e) {
    GroupedQueryAttentionOptions o{.name = "own", .heads = kHeads, .kv_heads = kKvHeads, .head_dim = 16};
    Graph g;
    const Value x = g.input("x", {1, kTokens, kWidth});
    o.mask.window = 3;
    o.scale = 0.125f;
    o.softcap = 2.0f;
    o.sinks = g.weight("own.sinks", {kHeads});
    give("y", grouped_query_attention(x, o));
    const auto heads = [&](const char* name, std::int64_t n) {
        return split_heads(linear_layer(x, std::string("own.") + name, n * o.head_dim, false), n);
    };
    const Mask window{.causal = Causal::top_left, .window = o.mask.window};
    const Value a =
        scaled_dot_product_attention(heads("q_proj", kHeads), heads("k_proj", kKvHeads), heads("v_proj", kKvHeads),
                                     {.mask = window, .scale = o.scale, .softcap = o.softcap, .sinks = o.sinks});
    give("want", linear_layer(merge_heads(a), "own.o_proj", kWidth, false));
    Tensors r = e.run(g);
    e.close("head_dim, scale, softcap, sinks and window (Gemma 2, gpt-oss) = its parts", r["y"], r["want"]);
}

}  // namespace

void grouped_queries(Examples& e) {
    e.family("grouped_query_attention");
    cached(e);
    relatives(e);
    phi(e);
    others(e);
}
