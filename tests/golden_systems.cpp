// SPDX-License-Identifier: Apache-2.0
// Each golden system as this library computes it.
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
    const std::map<std::string, Kind> kinds{{"linear", Kind::linear}, {"ntk", Kind::ntk}, {"llama3", Kind::llama3}, {"yarn", Kind::yarn}};
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

RopeLayout layout_of(const std::string& name) {
    if (name != "interleaved" && name != "half") {
        throw Error("unknown RoPE layout " + name);
    }
    return name == "half" ? RopeLayout::half : RopeLayout::interleaved;
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
    c.output(g, "y", torch::transformer_encoder_layer(src, layer_options(c), c.input_if(g, "src_mask"),
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
Value padding_of(Graph& g, const std::string& name, const std::vector<std::int32_t>& tokens, const std::vector<std::int64_t>& shape,
                 std::int32_t pad) {
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
    const Value target_padding = slice(padding_of(g, "target_padding", c.integers("in.tgt"), {batch, target}, pad), 1, 0, target - 1);
    torch::DecoderInputs in;
    in.memory = transformer_encoder(embed_tokens(src, "src_embed.weight", config.source_vocabulary, config, source), source_padding, config);
    in.tgt_key_padding_mask = target_padding;
    in.memory_key_padding_mask = source_padding;
    in.tgt_is_causal = true;
    const Value embedded = embed_tokens(slice(tgt, 1, 0, target - 1), "tgt_embed.weight", config.target_vocabulary, config, target);
    const DecoderStack stack = transformer_decoder(embedded, config, std::vector(static_cast<std::size_t>(config.num_decoder_layers), in));
    c.output(g, "logits", linear_layer(stack.y, "generator", config.target_vocabulary));
    c.run(device, g);
}

}  // namespace

void run_golden_case(const Device& device, GoldenCase& c) {
    using Run = void (*)(const Device&, GoldenCase&);
    static const std::map<std::string, Run> kSystems{
        {"self_attention", self_attention_case},
        {"multi_head_attention", multi_head_attention_case},
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
