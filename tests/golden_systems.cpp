// SPDX-License-Identifier: Apache-2.0
// Each golden system as this library computes it.
#include <array>
#include <cmath>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "layers/torch.h"
#include "models/encoder_decoder.h"
#include "ops/ops.h"
#include "tests/golden_case.h"

namespace vkf::test {

namespace {

Activation activation_of(const std::string& name) {
    if (name == "relu") {
        return Activation::relu;
    }
    if (name == "gelu") {
        return Activation::gelu;
    }
    if (name == "silu") {
        return Activation::silu;
    }
    throw Error("unknown activation " + name);
}

RopeLayout layout_of(const std::string& name) {
    if (name != "interleaved" && name != "half") {
        throw Error("unknown RoPE layout " + name);
    }
    return name == "half" ? RopeLayout::half : RopeLayout::interleaved;
}

Mask mask_of(GoldenCase& c, Graph& g) {
    Mask mask;
    mask.keys = c.input_if(g, "mask");
    mask.fill = static_cast<float>(c.number_or("mask_fill", -std::numeric_limits<double>::infinity()));
    return mask;
}

void self_attention_case(const Device& device, GoldenCase& c) {
    Graph g;
    SelfAttentionOptions o;
    c.integer("dim");
    o.fused_qkv = c.flag("fused_qkv");
    o.out_proj = c.flag("out_proj");
    o.bias = c.has_param(o.fused_qkv ? "qkv_proj.bias" : "q_proj.bias");
    o.mask = mask_of(c, g);
    const AttentionResult a = self_attention(c.input(g, "x"), o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.run(device, g);
}

void multi_head_attention_case(const Device& device, GoldenCase& c) {
    Graph g;
    MultiHeadAttentionOptions o;
    c.integer("dim");
    o.heads = c.integer("heads");
    o.mask = mask_of(c, g);
    Value query, key, value;
    if (c.flag("cross")) {
        query = c.input(g, "query");
        key = c.input(g, "key");
        value = c.input(g, "value");
    } else {
        query = key = value = c.input(g, "x");
    }
    const AttentionResult a = multi_head_attention(query, key, value, o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.run(device, g);
}

RopeScaling scaling_of(const nlohmann::json& s) {
    RopeScaling out;
    if (s.is_null()) {
        return out;
    }
    using Kind = RopeScaling::Kind;
    const std::map<std::string, Kind> kinds{
        {"linear", Kind::linear}, {"ntk", Kind::ntk}, {"llama3", Kind::llama3}, {"yarn", Kind::yarn}};
    for (const auto& [key, value] : s.items()) {
        if (key == "type") {
            if (!kinds.contains(value)) {
                throw Error("unknown RoPE scaling " + value.dump());
            }
            out.kind = kinds.at(value);
        } else if (key == "factor") {
            out.factor = value;
        } else if (key == "low_freq_factor") {
            out.low_freq_factor = value;
        } else if (key == "high_freq_factor") {
            out.high_freq_factor = value;
        } else if (key == "beta_fast") {
            out.beta_fast = value;
        } else if (key == "beta_slow") {
            out.beta_slow = value;
        } else if (key == "original_max_position_embeddings") {
            out.original_max_positions = value;
        } else {
            throw Error("unknown key " + key + " of RoPE scaling");
        }
    }
    return out;
}

void sdpa_case(const Device& device, GoldenCase& c) {
    Graph g;
    AttentionOptions o;
    const Value query = c.input(g, "query");
    const Value key = c.input(g, "key");
    const Value value = c.input(g, "value");
    c.flag("enable_gqa");
    o.scale = static_cast<float>(c.number_or("scale", 0));
    o.softcap = static_cast<float>(c.number_or("softcap", 0));
    o.log_sum_exp = true;
    const Value mask = c.input_if(g, "attn_mask");
    (mask && mask.dtype() == DType::i32 ? o.mask.keys : o.mask.bias) = mask;
    if (c.flag("is_causal")) {
        const bool bottom_right =
            !c.config("causal_alignment").is_null() && c.text("causal_alignment") == "bottom_right";
        o.mask.causal = bottom_right ? Causal::bottom_right : Causal::top_left;
    }
    o.mask.window = static_cast<std::int64_t>(c.number_or("window", 0));
    if (c.flag("alibi")) {
        o.mask.alibi_slopes = c.input(g, "alibi_slopes");
    }
    if (c.flag("sinks")) {
        o.sinks = c.input(g, "sinks");
    }
    const AttentionResult a = scaled_dot_product_attention(query, key, value, o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.output(g, "lse", a.log_sum_exp);
    c.run(device, g);
}

void torch_mha_case(const Device& device, GoldenCase& c) {
    Graph g;
    torch::MultiheadAttentionOptions o;
    o.num_heads = c.integer("num_heads");
    o.bias = c.flag("bias");
    o.add_bias_kv = c.flag("add_bias_kv");
    o.add_zero_attn = c.flag("add_zero_attn");
    o.batch_first = c.flag("batch_first");
    o.average_attn_weights = c.flag("average_attn_weights");
    for (const char* derived : {"embed_dim", "kdim", "vdim"}) {  // the tensors have these sizes
        c.config(derived);
    }
    o.attn_mask = c.input_if(g, "attn_mask");
    o.key_padding_mask = c.input_if(g, "key_padding_mask");
    const AttentionResult a =
        torch::multihead_attention(c.input(g, "query"), c.input(g, "key"), c.input(g, "value"), o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.run(device, g);
}

void incremental_attention_case(const Device& device, GoldenCase& c) {
    Graph g;
    IncrementalAttentionOptions o;
    c.integer("dim");
    o.heads = c.integer("heads");
    o.kv_heads = c.integer("kv_heads");
    o.head_dim = c.integer("head_dim");
    o.scale = static_cast<float>(c.number("scale"));
    const IncrementalAttentionResult a =
        incremental_attention(c.input(g, "x"), c.input(g, "context"), c.input(g, "cache_k"), c.input(g, "cache_v"), o);
    c.output(g, "y", a.y);
    c.output(g, "out_cache_k", a.cache_key);
    c.output(g, "out_cache_v", a.cache_value);
    c.run(device, g, {{"out_cache_k", "cache_k"}, {"out_cache_v", "cache_v"}});
}

/// A prompt, then single tokens, through one program and its cache; the cache read back by another.
void cached_attention_case(const Device& device, GoldenCase& c) {
    const std::int64_t dim = c.integer("dim");
    const std::int64_t heads = c.integer("heads");
    const std::int64_t kv_heads = c.integer("kv_heads");
    const std::int64_t prefill = c.integer("prefill");
    const std::int64_t steps = c.integer("steps");
    const std::int64_t capacity = c.integer("max_len");
    const std::int64_t batch = c.shape("in.x")[0].constant();
    Graph g;
    const Dim tokens = g.symbol("tokens", capacity);
    const Dim start = g.symbol("start", capacity);
    const Shape cache_shape{batch, capacity, kv_heads, dim / heads};
    GroupedQueryAttentionOptions o;
    o.heads = heads;
    o.kv_heads = kv_heads;
    o.rope = Rope{.theta = c.number("theta"), .layout = layout_of(c.text("rope_layout"))};
    o.cache = KvCache{g.state("k", cache_shape), g.state("v", cache_shape), start};
    std::copy_n(std::array{"wq", "wk", "wv", "wo"}.begin(), 4, o.names);
    g.output("y", grouped_query_attention(g.input("x", {batch, tokens, dim}), o));
    Graph reader;
    reader.output("cache_k", contiguous(reader.state("k", cache_shape)));
    reader.output("cache_v", contiguous(reader.state("v", cache_shape)));

    CompileOptions options{.name = c.name()};
    options.state = device.make_state({&g, &reader});
    Program program = device.compile(g, c.weights(device), options);
    c.use_params(g);
    const std::vector<float> x = c.floats("in.x");
    const std::int64_t all = prefill + steps;
    std::vector<float> y(x.size());
    for (std::int64_t at = 0; at < all;) {
        const std::int64_t count = at == 0 ? prefill : 1;
        const auto copy_rows = [&](auto from, auto to, std::int64_t from_rows, std::int64_t to_rows,
                                   std::int64_t from_at, std::int64_t to_at) {
            for (std::int64_t b = 0; b < batch; ++b) {
                std::copy_n(from + (b * from_rows + from_at) * dim, count * dim, to + (b * to_rows + to_at) * dim);
            }
        };
        std::vector<float> part(static_cast<std::size_t>(batch * count * dim));
        copy_rows(x.begin(), part.begin(), all, count, at, 0);
        program.set("tokens", count);
        program.set("start", at);
        program.upload("x", part);
        program.run();
        const std::vector<float> rows = program.download("y");
        copy_rows(rows.begin(), y.begin(), count, all, 0, at);
        at += count;
    }
    c.result("y", {batch, all, dim}, y);
    Program read = device.compile(reader, {}, options);
    read.run();
    for (const char* name : {"cache_k", "cache_v"}) {
        c.result(name, read.shape(name), read.download(name));
    }
}

void attention_score_case(const Device& device, GoldenCase& c) {
    Graph g;
    const std::map<std::string, ScoreKind> kinds{{"dot", ScoreKind::dot},
                                                 {"scaled_dot", ScoreKind::scaled_dot},
                                                 {"general", ScoreKind::general},
                                                 {"additive", ScoreKind::additive}};
    const Value query = c.input(g, "query");
    const Value key = c.input(g, "key");
    const Value value = c.input(g, "value");
    const std::int64_t hidden = c.has_param("v") ? c.shape("param.v")[0].constant() : 0;
    const Value scores = attention_scores(query, key, {.kind = kinds.at(c.text("kind")), .hidden = hidden});
    const Value weights = softmax(scores);
    c.output(g, "scores", contiguous(scores));
    c.output(g, "weights", weights);
    c.output(g, "y", matmul(weights, value, {.masked_weights = true}));
    c.output(g, "y_hard", matmul(hard_max(scores), value, {.masked_weights = true}));
    c.run(device, g);
}

void batch_norm_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value x = c.input(g, "x");
    const auto column = [&](const char* name) { return g.weight(name, {x.size(1)}); };
    const Value weight = column("weight");
    const Value bias = column("bias");
    const auto eps = static_cast<float>(c.number("eps"));
    const BatchNormResult r = batch_norm_train(x, weight, bias, column("running_mean"), column("running_var"),
                                               static_cast<float>(c.number("momentum")), eps);
    c.output(g, "y_train", r.y);
    c.output(g, "y_eval", batch_norm(x, weight, bias, r.running_mean, r.running_var, eps));
    c.output(g, "new_mean", r.running_mean);
    c.output(g, "new_var", r.running_var);
    c.run(device, g, {{"new_mean", "running_mean"}, {"new_var", "running_var"}});
}

void rope_case(const Device& device, GoldenCase& c) {
    Graph g;
    Rope o;
    o.theta = c.number("theta");
    o.layout = layout_of(c.text("layout"));
    o.rotary_dim = static_cast<std::int64_t>(c.number_or("rotary_dim", 0));
    o.scaling = scaling_of(c.config("scaling"));
    for (const std::int32_t p : c.integers("in.positions")) {
        o.max_positions = std::max<std::int64_t>(o.max_positions, p + 1);
    }
    const Value x = transpose(c.input(g, "x"), 1, 2);  // (B, S, H, d) -> (B, H, S, d)
    c.output(g, "y", transpose(rope_at(x, c.input(g, "positions"), o), 1, 2));
    c.run(device, g);
}

void repeat_kv_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.output(g, "y", repeat_kv(c.input(g, "x"), c.integer("n_rep")));
    c.run(device, g);
}

void norm_case(const Device& device, GoldenCase& c, bool centred) {
    Graph g;
    const Value x = c.input(g, "x");
    const Value weight = g.weight("weight", {x.size(-1)});
    const auto eps = static_cast<float>(c.number("eps"));
    c.output(g, "y", centred ? layer_norm(x, weight, g.weight("bias", {x.size(-1)}), eps) : rms_norm(x, weight, eps));
    c.run(device, g);
}

void sinusoidal_position_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.output(g, "y", sinusoidal_positions(g, c.integer("length"), c.integer("dim")));
    c.run(device, g);
}

void feed_forward_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value x = c.input(g, "x");
    const std::string kind = c.text("activation");
    if (kind == "swiglu") {
        c.output(g, "y", gated_feed_forward(x, c.shape("param.gate_proj.weight")[0].constant()));
    } else {
        c.output(g, "y", feed_forward(x, c.shape("param.linear1.weight")[0].constant(), activation_of(kind)));
    }
    c.run(device, g);
}

torch::TransformerLayerOptions layer_options(GoldenCase& c) {
    c.integer("d_model");
    torch::TransformerLayerOptions o;
    o.nhead = c.integer("nhead");
    o.dim_feedforward = c.integer("dim_feedforward");
    o.activation = activation_of(c.text("activation"));
    o.norm_first = c.flag("norm_first");
    o.layer_norm_eps = static_cast<float>(c.number("layer_norm_eps"));
    return o;
}

void encoder_layer_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value src = c.input(g, "src");
    c.output(g, "y",
             torch::transformer_encoder_layer(src, layer_options(c), c.input_if(g, "src_mask"),
                                              c.input_if(g, "src_key_padding_mask")));
    c.run(device, g);
}

void decoder_layer_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value tgt = c.input(g, "tgt");
    torch::DecoderInputs in;
    in.memory = c.input(g, "memory");
    in.tgt_mask = c.input_if(g, "tgt_mask");
    in.tgt_key_padding_mask = c.input_if(g, "tgt_key_padding_mask");
    in.memory_mask = c.input_if(g, "memory_mask");
    in.memory_key_padding_mask = c.input_if(g, "memory_key_padding_mask");
    c.output(g, "y", torch::transformer_decoder_layer(tgt, layer_options(c), in));
    c.run(device, g);
}

/// 1 where the token is padding.
Value padding_of(Graph& g, const std::string& name, const std::vector<std::int32_t>& tokens,
                 const std::vector<std::int64_t>& shape, std::int32_t pad) {
    std::vector<std::int32_t> mask;
    for (const std::int32_t t : tokens) {
        mask.push_back(t == pad ? 1 : 0);
    }
    return g.constant(name, shape, std::span<const std::int32_t>(mask));
}

void transformer_case(const Device& device, GoldenCase& c) {
    Graph g;
    EncoderDecoderConfig config;
    config.source_vocabulary = config.target_vocabulary = c.integer("vocab");
    config.d_model = c.integer("d_model");
    config.nhead = c.integer("nhead");
    config.num_encoder_layers = config.num_decoder_layers = c.integer("num_layers");
    config.dim_feedforward = c.integer("dim_feedforward");
    config.norm_first = c.flag("norm_first");
    config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.d_model)));
    const auto pad = static_cast<std::int32_t>(c.integer("pad"));
    for (const char* unused : {"sos", "eos", "adam"}) {
        c.config(unused);
    }
    const Value src = c.input(g, "src");
    const Value tgt = c.input(g, "tgt");
    const std::int64_t batch = src.size(0).constant();
    const std::int64_t source = src.size(1).constant();
    const std::int64_t target = tgt.size(1).constant();
    const Value source_padding = padding_of(g, "source_padding", c.integers("in.src"), {batch, source}, pad);
    const Value target_padding =
        slice(padding_of(g, "target_padding", c.integers("in.tgt"), {batch, target}, pad), 1, 0, target - 1);
    torch::TransformerMasks masks;
    masks.src_key_padding_mask = masks.memory_key_padding_mask = source_padding;
    masks.tgt_key_padding_mask = target_padding;
    masks.tgt_is_causal = true;
    const Value embedded_src = embed_tokens(src, "src_embed.weight", config.source_vocabulary, config, source);
    const Value embedded_tgt =
        embed_tokens(slice(tgt, 1, 0, target - 1), "tgt_embed.weight", config.target_vocabulary, config, target);
    const Value y = torch::transformer(embedded_src, embedded_tgt,
                                       {.layer = vkf::layer_options(config),
                                        .name = "transformer",
                                        .num_encoder_layers = config.num_encoder_layers,
                                        .num_decoder_layers = config.num_decoder_layers},
                                       masks);
    const Value logits = linear_layer(y, "generator", config.target_vocabulary);
    c.output(g, "logits", logits);
    c.output(g, "loss", cross_entropy(logits, slice(tgt, 1, 1, target - 1), {.ignore_index = pad}));
    c.run(device, g);
}

}  // namespace

void run_golden_case(const Device& device, GoldenCase& c) {
    using Run = void (*)(const Device&, GoldenCase&);
    static const std::map<std::string, Run> kSystems{
        {"self_attention", self_attention_case},
        {"multi_head_attention", multi_head_attention_case},
        {"scaled_dot_product_attention", sdpa_case},
        {"torch.nn.MultiheadAttention", torch_mha_case},
        {"incremental_attention", incremental_attention_case},
        {"cached_attention", cached_attention_case},
        {"attention_score", attention_score_case},
        {"batch_norm", batch_norm_case},
        {"rope", rope_case},
        {"repeat_kv", repeat_kv_case},
        {"layer_norm", [](const Device& d, GoldenCase& k) { norm_case(d, k, true); }},
        {"rms_norm", [](const Device& d, GoldenCase& k) { norm_case(d, k, false); }},
        {"sinusoidal_position", sinusoidal_position_case},
        {"feed_forward", feed_forward_case},
        {"torch.nn.TransformerEncoderLayer", encoder_layer_case},
        {"torch.nn.TransformerDecoderLayer", decoder_layer_case},
        {"transformer", transformer_case},
    };
    if (c.system().ends_with("_backward")) {
        throw NotYet{c.system()};
    }
    const auto at = kSystems.find(c.system());
    if (at == kSystems.end()) {
        throw Error("unknown system " + c.system(), c.name());
    }
    at->second(device, c);
}

}  // namespace vkf::test
