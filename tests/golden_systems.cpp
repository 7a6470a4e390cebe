// SPDX-License-Identifier: Apache-2.0
// Norms, feed-forwards and whole layers as this library computes them, and the way from a name to a
// system.
#include <cmath>

#include "layers/feed_forward.h"
#include "layers/torch.h"
#include "models/encoder_decoder.h"
#include "ops/ops.h"
#include "tests/golden_systems.h"

namespace vkf::test {

namespace {

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
    for (const char* derived : {"dim", "hidden"}) {  // the tensors have these sizes
        c.config(derived);
    }
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

/// Gives 1 where the token is padding.
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

const GoldenSystems& module_systems() {
    static const GoldenSystems kSystems{
        {"batch_norm", batch_norm_case},
        {"layer_norm", [](const Device& d, GoldenCase& k) { norm_case(d, k, true); }},
        {"layer_norm_backward", [](const Device& d, GoldenCase& k) { norm_case(d, k, true); }},
        {"rms_norm", [](const Device& d, GoldenCase& k) { norm_case(d, k, false); }},
        {"sinusoidal_position", sinusoidal_position_case},
        {"feed_forward", feed_forward_case},
        {"torch.nn.TransformerEncoderLayer", encoder_layer_case},
        {"torch.nn.TransformerDecoderLayer", decoder_layer_case},
        {"transformer", transformer_case},
    };
    return kSystems;
}

void run_golden_case(const Device& device, GoldenCase& c) {
    if (c.system() == "optimizer" || c.system() == "clip_grad_norm" || c.system() == "train") {
        throw NotYet{c.system()};
    }
    for (const GoldenSystems* systems :
         {&attention_systems(), &module_systems(), &op_systems(), &transformers_systems(), &sequence_systems()}) {
        const auto at = systems->find(c.system());
        if (at != systems->end()) {
            return at->second(device, c);
        }
    }
    throw Error("unknown system " + c.system(), c.name());
}

}  // namespace vkf::test
