// SPDX-License-Identifier: Apache-2.0
// Norms, feed-forwards and whole layers as this library computes them, and the way from a name to a
// system.
#include <cmath>

#include "layers/feed_forward.h"
#include "layers/parallel.h"
#include "layers/torch.h"
#include "models/encoder_decoder.h"
#include "ops/gradients.h"
#include "ops/ops.h"
#include "ops/optimizer.h"
#include "tests/golden_systems.h"
#include "tests/op_check.h"

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
    c.begin(g);
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
    c.begin(g);
    const Value src = c.input(g, "src");
    c.output(g, "y",
             torch::transformer_encoder_layer(src, layer_options(c), c.input_if(g, "src_mask"),
                                              c.input_if(g, "src_key_padding_mask")));
    c.run(device, g);
}

void decoder_layer_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
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

EncoderDecoderConfig transformer_config(GoldenCase& c) {
    EncoderDecoderConfig config;
    config.source_vocabulary = config.target_vocabulary = c.integer("vocab");
    config.d_model = c.integer("d_model");
    config.nhead = c.integer("nhead");
    config.num_encoder_layers = config.num_decoder_layers = c.integer("num_layers");
    config.dim_feedforward = c.integer("dim_feedforward");
    config.norm_first = c.flag("norm_first");
    config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.d_model)));
    for (const char* unused : {"sos", "eos"}) {
        c.config(unused);
    }
    return config;
}

/// Tokens, and masks (B, ...) that are 1 where these are padding.
struct TransformerInputs {
    Value src, tgt, source_padding, target_padding;
};

struct TransformerOutputs {
    Value logits, loss;
};

TransformerOutputs transformer_loss(const EncoderDecoderConfig& config, const TransformerInputs& in, std::int64_t pad) {
    const std::int64_t source = in.src.size(1).constant();
    const std::int64_t target = in.tgt.size(1).constant();
    torch::TransformerMasks masks;
    masks.src_key_padding_mask = masks.memory_key_padding_mask = in.source_padding;
    masks.tgt_key_padding_mask = slice(in.target_padding, 1, 0, target - 1);
    masks.tgt_is_causal = true;
    const Value embedded_src = embed_tokens(in.src, "src_embed.weight", config.source_vocabulary, config, source);
    const Value embedded_tgt =
        embed_tokens(slice(in.tgt, 1, 0, target - 1), "tgt_embed.weight", config.target_vocabulary, config, target);
    const Value y = torch::transformer(embedded_src, embedded_tgt,
                                       {.layer = vkf::layer_options(config),
                                        .name = "transformer",
                                        .num_encoder_layers = config.num_encoder_layers,
                                        .num_decoder_layers = config.num_decoder_layers},
                                       masks);
    const Value logits =
        column_parallel_linear(y, "generator", config.target_vocabulary, {.bias = true, .gather_output = true});
    return {logits, cross_entropy(logits, slice(in.tgt, 1, 1, target - 1), {.ignore_index = pad})};
}

std::vector<std::int32_t> padding_of(std::span<const std::int32_t> tokens, std::int64_t pad) {
    std::vector<std::int32_t> mask;
    for (const std::int32_t t : tokens) {
        mask.push_back(t == pad ? 1 : 0);
    }
    return mask;
}

/// One batch after another; the graph's "loss" of each.
struct Training {
    std::vector<float> losses, norms;
};

Training train(const Device& device, GoldenCase& c, const EncoderDecoderConfig& config, const AdamW& optimizer,
               const Schedule& schedule, float max_norm, std::int64_t batches) {
    const std::int64_t pad = c.integer("pad");
    const std::vector<std::int32_t> src = c.integers("in.src"), tgt = c.integers("in.tgt");
    const auto batch_shape = [&](const char* name) {
        const Shape all = c.shape(name);
        return all.size() == 3 ? Shape{all[1], all[2]} : all;
    };
    Graph g;
    const Shape source = batch_shape("in.src"), target = batch_shape("in.tgt");
    const TransformerInputs in{g.input("src", source, DType::i32), g.input("tgt", target, DType::i32),
                               g.input("source_padding", source, DType::i32),
                               g.input("target_padding", target, DType::i32)};
    const Value loss = transformer_loss(config, in, pad).loss;
    const std::vector<Value> parameters = trainable(g);
    const std::vector<Value> found = gradients(loss, parameters);
    UpdateOptions options{.step = g.symbol("step", 1000), .schedule = schedule};
    if (max_norm > 0) {
        const ClippedNorm clipped = clip_grad_norm(found, max_norm);
        options.gradient_scale = clipped.scale;
        g.output("norm", clipped.norm);
    }
    update(parameters, found, optimizer, options);
    g.output("loss", loss);
    CompileOptions compile{.name = c.name()};
    compile.state = c.parameters(device, g);
    Program program = device.compile(g, {}, compile);
    Training out;
    for (std::int64_t step = 0; step < batches; ++step) {
        // a file with one batch has it again and again
        const auto part = [&](const std::vector<std::int32_t>& all, const Shape& shape) {
            const auto count = static_cast<std::size_t>(elements(shape).constant());
            return std::span(all).subspan(all.size() == count ? 0 : static_cast<std::size_t>(step) * count, count);
        };
        program.set("step", step);
        program.upload("src", part(src, source));
        program.upload("tgt", part(tgt, target));
        program.upload("source_padding", padding_of(part(src, source), pad));
        program.upload("target_padding", padding_of(part(tgt, target), pad));
        program.run();
        require_quiet(program);
        out.losses.push_back(program.download("loss").front());
        if (max_norm > 0) {
            out.norms.push_back(program.download("norm").front());
        }
    }
    return out;
}

void transformer_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    const EncoderDecoderConfig config = transformer_config(c);
    const std::int64_t pad = c.integer("pad");
    const auto padding = [&](const char* name, const std::string& tokens) {
        const Shape shape = c.shape(tokens);
        return g.constant(name, {shape[0].constant(), shape[1].constant()},
                          std::span<const std::int32_t>(padding_of(c.integers(tokens), pad)));
    };
    const TransformerInputs in{c.input(g, "src"), c.input(g, "tgt"), padding("source_padding", "in.src"),
                               padding("target_padding", "in.tgt")};
    const TransformerOutputs out = transformer_loss(config, in, pad);
    c.output(g, "logits", out.logits);
    c.output(g, "loss", out.loss);
    c.run(device, g);
    if (const nlohmann::json adam = c.config("adam"); !adam.is_null() && c.rank().ranks == 1) {
        AdamW optimizer{.learning_rate = adam.at("lr"), .weight_decay = 0.0, .decoupled = false};
        if (adam.contains("betas")) {
            optimizer.beta1 = adam["betas"][0];
            optimizer.beta2 = adam["betas"][1];
        }
        optimizer.eps = adam.value("eps", optimizer.eps);
        c.result("loss_after_step", {1}, {train(device, c, config, optimizer, {}, 0.0f, 2).losses[1]});
    }
}

void train_case(const Device& device, GoldenCase& c) {
    const EncoderDecoderConfig config = transformer_config(c);
    const nlohmann::json o = c.config("optimizer");
    const AdamW optimizer{.learning_rate = o.at("lr"),
                          .beta1 = o.at("betas")[0],
                          .beta2 = o.at("betas")[1],
                          .eps = o.at("eps"),
                          .weight_decay = o.at("weight_decay")};
    if (o.at("name") != "AdamW" || c.text("schedule") != "lr * min((t+1)/5, 1) * (1 + cos(pi t / 20)) / 2, t from 0") {
        throw Error("unknown optimizer or schedule", c.name());
    }
    const Schedule schedule{.kind = Schedule::Kind::cosine, .warmup = 5, .steps = 20};
    const Training done = train(device, c, config, optimizer, schedule, static_cast<float>(c.number("clip_grad_norm")),
                                c.shape("in.src")[0].constant());
    const auto count = static_cast<std::int64_t>(done.losses.size());
    c.result("losses", {count}, done.losses);
    c.result("grad_norms", {count}, done.norms);
}

void optimizer_case(const Device& device, GoldenCase& c) {
    const Shape shape = c.shape("in.parameter");
    Graph g;
    const Value parameter = g.state("parameter", shape);
    const Value gradient = g.input("gradient", shape);
    const UpdateOptions options{.step = g.symbol("step", 100)};
    const std::string name = c.text("name");
    const double rate = c.number("lr");
    if (name == "SGD") {
        update({parameter}, {gradient},
               Sgd{.learning_rate = rate,
                   .momentum = c.number_or("momentum", 0.0),
                   .dampening = c.number_or("dampening", 0.0),
                   .nesterov = c.flag("nesterov"),
                   .weight_decay = c.number_or("weight_decay", 0.0)},
               options);
    } else {
        AdamW o{.learning_rate = rate, .decoupled = name == "AdamW", .amsgrad = c.flag("amsgrad")};
        o.weight_decay = c.number_or("weight_decay", o.decoupled ? o.weight_decay : 0.0);
        if (const nlohmann::json betas = c.config("betas"); !betas.is_null()) {
            o.beta1 = betas[0];
            o.beta2 = betas[1];
        }
        o.eps = c.number_or("eps", o.eps);
        update({parameter}, {gradient}, o, options);
    }
    CompileOptions compile{.name = c.name()};
    State state = compile.state = device.make_state({&g});
    state.write("parameter", std::as_bytes(std::span<const float>(c.floats("in.parameter"))));
    Program program = device.compile(g, {}, compile);
    const std::vector<float> all = c.floats("in.gradients");
    const auto count = static_cast<std::size_t>(elements(shape).constant());
    std::vector<float> after;
    for (std::size_t step = 0; step * count < all.size(); ++step) {
        program.set("step", static_cast<std::int64_t>(step));
        program.upload("gradient", std::span(all).subspan(step * count, count));
        program.run();
        require_quiet(program);
        const std::vector<std::byte> bytes = state.read("parameter");
        const auto* numbers = reinterpret_cast<const float*>(bytes.data());
        after.insert(after.end(), numbers, numbers + count);
    }
    c.result("parameter", {static_cast<std::int64_t>(all.size() / count), static_cast<std::int64_t>(count)}, after);
}

void clip_case(const Device& device, GoldenCase& c) {
    Graph g;
    std::vector<Value> found;
    for (int i = 0; c.has_input("g" + std::to_string(i)); ++i) {
        found.push_back(c.input(g, "g" + std::to_string(i)));
    }
    const ClippedNorm clipped = clip_grad_norm(found, static_cast<float>(c.number("max_norm")));
    std::map<std::string, std::string> renamed;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const std::string name = "g" + std::to_string(i);
        c.output(g, "clipped " + name, found[i] * clipped.scale);
        renamed["clipped " + name] = name;
    }
    c.output(g, "norm", clipped.norm);
    c.run(device, g, renamed);
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
        {"train", train_case},
        {"optimizer", optimizer_case},
        {"clip_grad_norm", clip_case},
    };
    return kSystems;
}

void run_golden_case(const Device& device, GoldenCase& c) { run_golden_system(device, c, c.system()); }

void run_golden_system(const Device& device, GoldenCase& c, const std::string& system) {
    for (const GoldenSystems* systems :
         {&attention_systems(), &module_systems(), &op_systems(), &transformers_systems(), &sequence_systems()}) {
        const auto at = systems->find(system);
        if (at != systems->end()) {
            return at->second(device, c);
        }
    }
    throw Error("unknown system " + system, c.name());
}

}  // namespace vkf::test
