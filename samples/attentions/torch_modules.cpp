// SPDX-License-Identifier: Apache-2.0
// torch.nn.MultiheadAttention argument by argument, and torch.nn.Transformer with its masks.
// Boolean masks: 1 = may not attend.
#include <cmath>

#include "example.h"

namespace {

constexpr std::int64_t kBatch = 2, kTokens = 5, kKeys = 7, kWidth = 16, kHeads = 4;

struct Qkv {
    Value query, key, value;
};

Qkv inputs(Graph& g) {
    return {g.input("query", {kBatch, kTokens, kWidth}), g.input("key", {kBatch, kKeys, kWidth}),
            g.input("value", {kBatch, kKeys, kWidth})};
}

AttentionResult attend(const Qkv& x, const torch::MultiheadAttentionOptions& o) {
    return torch::multihead_attention(x.query, x.key, x.value, o);
}

/// 1 where key > query: a causal mask as PyTorch has it.
Integers future(std::int64_t queries, std::int64_t keys) {
    Integers mask;
    for (std::int64_t query = 0; query < queries; ++query) {
        for (std::int64_t key = 0; key < keys; ++key) {
            mask.push_back(key > query ? 1 : 0);
        }
    }
    return mask;
}

void widths(Examples& e) {
    Graph g;
    const Value query = g.input("query", {kBatch, kTokens, kWidth});
    const Value key = g.input("key", {kBatch, kKeys, 6}), value = g.input("value", {kBatch, kKeys, 10});
    give("y", attend({query, key, value}, {.name = "mha", .num_heads = kHeads}));
    const Value bias = g.weight("mha.in_proj_bias", {3 * kWidth});
    const auto project = [&](Value x, const char* name, std::int64_t part) {
        const Value weight = g.weight(std::string("mha.") + name, {kWidth, x.size(-1)});
        return split_heads(linear(x, weight, slice(bias, 0, part * kWidth, kWidth)), kHeads);
    };
    const Value a = scaled_dot_product_attention(project(query, "q_proj_weight", 0), project(key, "k_proj_weight", 1),
                                                 project(value, "v_proj_weight", 2));
    give("want", linear_layer(merge_heads(a), "mha.out_proj", kWidth));
    Tensors r = e.run(g);
    e.close("kdim 6, vdim 10: q_proj_weight, k_proj_weight, v_proj_weight = its parts", r["y"], r["want"]);
}

void layout_and_weights(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const AttentionResult a = attend(x, {.name = "mha", .num_heads = kHeads});
    const auto tokens_first = [](Value v) { return contiguous(transpose(v, 0, 1)); };
    give("y", a.y);
    give("weights", a.weights);
    give("average", attend(x, {.name = "mha", .num_heads = kHeads, .average_attn_weights = true}).weights);
    const Qkv turned{tokens_first(x.query), tokens_first(x.key), tokens_first(x.value)};
    give("turned", transpose(attend(turned, {.name = "mha", .num_heads = kHeads, .batch_first = false}), 0, 1));
    Tensors r = e.run(g);
    e.close("batch_first = False: (tokens, batch, width) in and out", r["turned"], r["y"]);
    Floats mean(r["average"].size());
    constexpr std::size_t kMap = kTokens * kKeys;
    for (std::size_t i = 0; i < r["weights"].size(); ++i) {
        mean[i / (kHeads * kMap) * kMap + i % kMap] += r["weights"][i] / static_cast<float>(kHeads);
    }
    e.close("average_attn_weights: the mean over heads", r["average"], mean);
}

void masks(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    torch::MultiheadAttentionOptions o{.name = "mha", .num_heads = kHeads};
    const auto with = [&](Value torch::MultiheadAttentionOptions::*argument, Value mask) {
        torch::MultiheadAttentionOptions changed = o;
        changed.*argument = mask;
        return attend(x, changed).y;
    };
    const Value padded =
        with(&torch::MultiheadAttentionOptions::key_padding_mask, g.input("padding", {kBatch, kKeys}, DType::i32));
    give("first", slice(padded, 0, 0, 1));
    const auto first = [](Value v, std::int64_t rows) { return slice(slice(v, 0, 0, 1), 1, 0, rows); };
    give("4 keys", attend({first(x.query, kTokens), first(x.key, 4), first(x.value, 4)}, o));
    give("boolean",
         with(&torch::MultiheadAttentionOptions::attn_mask, g.input("future", {kTokens, kKeys}, DType::i32)));
    give("float", with(&torch::MultiheadAttentionOptions::attn_mask, g.input("bias", {kTokens, kKeys})));
    o.is_causal = true;
    give("causal", attend(x, o));
    Given given{
        .integers = {{"padding", {0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0}}, {"future", future(kTokens, kKeys)}}};
    for (const std::int32_t hidden : given.integers["future"]) {
        given.floats["bias"].push_back(hidden != 0 ? -INFINITY : 0.0f);
    }
    Tensors r = e.run(g, given);
    e.close("key_padding_mask over the last 3 keys = 4 keys", r["first"], r["4 keys"]);
    e.close("attn_mask, boolean, of what is to come = is_causal", r["boolean"], r["causal"]);
    e.close("attn_mask, float, of 0 and -inf = boolean", r["float"], r["boolean"]);
}

void appended_keys(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const AttentionResult zero = attend(x, {.name = "zero", .num_heads = kHeads, .add_zero_attn = true});
    const AttentionResult bias = attend(x, {.name = "bias", .num_heads = kHeads, .add_bias_kv = true});
    give("zero", zero.y);
    give("bias", bias.y);
    give("weights", bias.weights);
    Given given;  // the same weights, and bias_k and bias_v of zeros
    for (const auto& [name, count] : std::map<std::string, std::size_t>{{"in_proj_weight", 3 * kWidth * kWidth},
                                                                        {"in_proj_bias", 3 * kWidth},
                                                                        {"out_proj.weight", kWidth * kWidth},
                                                                        {"out_proj.bias", kWidth}}) {
        given.floats["zero." + name] = given.floats["bias." + name] = numbers(name, count);
    }
    given.floats["bias.bias_k"] = given.floats["bias.bias_v"] = Floats(kWidth);
    Tensors r = e.run(g, given);
    e.close("add_bias_kv with a bias_k and bias_v of 0 = add_zero_attn", r["bias"], r["zero"]);
    e.holds("weights have a column for the key that was added", r["weights"].size() == kBatch * kHeads * kTokens * 8);
}

void steps_and_memory(Examples& e) {
    torch::MultiheadAttentionOptions o{.name = "mha", .num_heads = kHeads};
    Graph g;
    const Value x = g.input("x", {1, kTokens, kWidth}), memory = g.input("memory", {1, kKeys, kWidth});
    o.is_causal = true;
    give("y", attend({x, x, x}, o));
    give("cross", attend({x, memory, memory}, {.name = "mha", .num_heads = kHeads}));
    const CachedKv projected = torch::project_memory(memory, "mha", kHeads);
    give("projected", attend({x, {}, {}}, {.name = "mha", .num_heads = kHeads, .memory = projected}));
    Tensors r = e.run(g);
    e.close("memory projected once by project_memory() = cross-attention", r["projected"], r["cross"]);

    Graph one;
    const Shape cache{1, kTokens, kHeads, kWidth / kHeads};
    const Value token = one.input("x", {1, 1, kWidth});
    o.cache = KvCache{one.state("key", cache), one.state("value", cache), one.symbol("start", kTokens - 1)};
    one.output("y", attend({token, token, token}, o));
    Program p = e.compile(one);
    Floats y;
    for (std::int64_t i = 0; i < kTokens; ++i) {
        p.set("start", i);
        p.upload("x", columns(numbers("x", kTokens * kWidth), kTokens * kWidth, static_cast<std::size_t>(i * kWidth),
                              kWidth));
        p.run();
        const Floats row = p.download("y");
        y.insert(y.end(), row.begin(), row.end());
    }
    e.close("token by token with a cache = is_causal over all", y, r["y"]);
}

void encoder_layer(Examples& e) {
    const torch::TransformerLayerOptions post{.name = "layer", .nhead = kHeads, .dim_feedforward = 24};
    torch::TransformerLayerOptions pre = post;
    pre.norm_first = true;
    pre.activation = Activation::gelu;
    Graph g;
    const Value x = g.input("x", {kBatch, kTokens, kWidth});
    const auto attention = [](Value h) { return attend({h, h, h}, {.name = "layer.self_attn", .num_heads = kHeads}); };
    const auto norm = [](Value h, const char* name) {
        return torch::layer_norm_layer(h, std::string("layer.") + name);
    };
    give("post", torch::transformer_encoder_layer(x, post));
    const Value a = norm(x + attention(x), "norm1");
    give("want post", norm(a + feed_forward(a, 24, Activation::relu, "layer"), "norm2"));
    give("pre", torch::transformer_encoder_layer(x, pre));
    const Value b = x + attention(norm(x, "norm1"));
    give("want pre", b + feed_forward(norm(b, "norm2"), 24, Activation::gelu, "layer"));
    Tensors r = e.run(g);
    e.close("transformer_encoder_layer, ReLU, norms after each half = its parts", r["post"], r["want post"]);
    e.close("norm_first, GELU = its parts", r["pre"], r["want pre"]);
}

void decoder_layer(Examples& e) {
    const torch::TransformerLayerOptions o{.name = "layer", .nhead = kHeads, .dim_feedforward = 24};
    Graph g;
    const Value x = g.input("x", {kBatch, kTokens, kWidth}), memory = g.input("memory", {kBatch, kKeys, kWidth});
    const auto norm = [](Value h, const char* name) {
        return torch::layer_norm_layer(h, std::string("layer.") + name);
    };
    const torch::DecoderResult decoded =
        torch::transformer_decoder_layer(x, o, {.memory = memory, .tgt_is_causal = true});
    const AttentionResult self = attend({x, x, x}, {.name = "layer.self_attn", .num_heads = kHeads, .is_causal = true});
    const Value a = norm(x + self.y, "norm1");
    const AttentionResult cross = attend({a, memory, memory}, {.name = "layer.multihead_attn", .num_heads = kHeads});
    const Value b = norm(a + cross.y, "norm2");
    give("y", decoded.y);
    give("weights", decoded.cross_weights);
    give("want", norm(b + feed_forward(b, 24, Activation::relu, "layer"), "norm3"));
    give("want weights", cross.weights);
    Tensors r = e.run(g);
    e.close("transformer_decoder_layer, causal, over a memory = its parts", r["y"], r["want"]);
    e.close("its cross_weights are those of its multihead_attn", r["weights"], r["want weights"]);
}

void whole_transformer(Examples& e) {
    const torch::TransformerOptions o{
        .layer = {.nhead = kHeads, .dim_feedforward = 24}, .num_encoder_layers = 2, .num_decoder_layers = 2};
    Graph g;
    const Value src = g.input("src", {1, kKeys, kWidth}), tgt = g.input("tgt", {1, kTokens, kWidth});
    const Value padding = g.input("padding", {1, kKeys}, DType::i32);
    const Value mask = g.input("future", {kTokens, kTokens}, DType::i32);
    give("y",
         torch::transformer(src, tgt, o,
                            {.tgt_mask = mask, .src_key_padding_mask = padding, .memory_key_padding_mask = padding}));
    const Value short_src = slice(src, 1, 0, 4);
    give("unpadded", torch::transformer(short_src, tgt, o, {.tgt_is_causal = true}));
    give("prefix", torch::transformer(short_src, slice(tgt, 1, 0, 2), o, {.tgt_is_causal = true}));
    const Value memory = torch::transformer_encoder(short_src, o.layer, 2, "encoder");
    const torch::DecoderInputs in{.memory = memory, .tgt_is_causal = true};
    const torch::DecoderResult decoded = torch::transformer_decoder(tgt, o.layer, {in, in}, "decoder");
    give("parts", decoded.y);
    Tensors r = e.run(g, {.integers = {{"padding", {0, 0, 0, 0, 1, 1, 1}}, {"future", future(kTokens, kTokens)}}});
    e.close("transformer: the source padded and masked = unpadded, tgt_mask = tgt_is_causal", r["y"], r["unpadded"]);
    e.close("it is transformer_encoder, then transformer_decoder", r["parts"], r["unpadded"]);
    e.close("what comes later in the target changes nothing before",
            columns(r["unpadded"], r["unpadded"].size(), 0, r["prefix"].size()), r["prefix"]);
}

}  // namespace

void torch_modules(Examples& e) {
    e.family("torch.nn.MultiheadAttention and torch.nn.Transformer");
    widths(e);
    layout_and_weights(e);
    masks(e);
    appended_keys(e);
    steps_and_memory(e);
    encoder_layer(e);
    decoder_layer(e);
    whole_transformer(e);
}
