// SPDX-License-Identifier: Apache-2.0
#include "trainer.h"

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

namespace {

constexpr const char* kSteps = "steps_taken";  // the state that keeps the number of the step

struct Described {
    vkf::Value loss;
    std::vector<vkf::Value> parameters;
};

/// Teacher forcing: the decoder is given each target without its last token, and must say it
/// without its first.
Described describe(vkf::Graph& graph, const vkf::EncoderDecoderConfig& config, const TrainerOptions& o) {
    const vkf::Value source = graph.input("source", {o.batch, o.source}, vkf::DType::i32);
    const vkf::Value padding = graph.input("source_padding", {o.batch, o.source}, vkf::DType::i32);
    const vkf::Value target = graph.input("target", {o.batch, o.target}, vkf::DType::i32);
    const vkf::Value given = vkf::slice(target, 1, 0, o.target - 1), wanted = vkf::slice(target, 1, 1, o.target - 1);
    vkf::torch::TransformerMasks masks;
    masks.src_key_padding_mask = masks.memory_key_padding_mask = padding;
    masks.tgt_is_causal = true;
    const vkf::Value y = vkf::torch::transformer(
        vkf::embed_tokens(source, "src_embed.weight", config.source_vocabulary, config, o.source),
        vkf::embed_tokens(given, "tgt_embed.weight", config.target_vocabulary, config, o.target),
        {.layer = vkf::layer_options(config),
         .name = "transformer",
         .num_encoder_layers = config.num_encoder_layers,
         .num_decoder_layers = config.num_decoder_layers},
        masks);
    const vkf::Value logits = vkf::linear_layer(y, "generator", config.target_vocabulary);
    const vkf::Value loss = vkf::cross_entropy(logits, wanted, {.ignore_index = o.pad});
    return {loss, vkf::trainable(graph)};
}

}  // namespace

Trainer::Trainer(const vkf::Device& device, const vkf::EncoderDecoderConfig& config, const TrainerOptions& options)
    : options_(options) {
    const Described d = describe(graph_, config, options_);
    const std::vector<vkf::Value> gradients = vkf::gradients(d.loss, d.parameters);
    const vkf::ClippedNorm clipped = vkf::clip_grad_norm(gradients, 1.0f);
    vkf::update(d.parameters, gradients,
                vkf::AdamW{.learning_rate = options_.learning_rate, .beta2 = 0.98, .weight_decay = 0.0},
                {.step = graph_.symbol("step", std::int64_t{1} << 30),
                 .schedule = {.kind = vkf::Schedule::Kind::cosine, .warmup = options_.warmup, .steps = options_.steps},
                 .gradient_scale = clipped.scale});
    graph_.output("loss", d.loss);
    graph_.state(kSteps, {1}, vkf::DType::i32);
    for (const vkf::Value& parameter : d.parameters) {
        const std::string text = parameter.str();  // "name (...) F32"
        names_.push_back(text.substr(0, text.find(' ')));
    }
    state_ = device.make_state({&graph_});
    vkf::CompileOptions compile{.name = "train"};
    compile.state = state_;
    program_ = std::make_unique<vkf::Program>(device.compile(graph_, vkf::Weights(), compile));
    initialize(config);
}

void Trainer::initialize(const vkf::EncoderDecoderConfig& config) {
    std::mt19937_64 random(options_.seed);
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    for (const std::string& name : names_) {
        const vkf::StoredTensor& tensor = *state_.find(name);
        std::int64_t count = 1;
        for (const std::int64_t size : tensor.shape) {
            count *= size;
        }
        const bool matrix = tensor.shape.size() == 2, norm = name.find("norm") != std::string::npos;
        const auto fan_out = static_cast<double>(tensor.shape.front()),
                   fan_in = static_cast<double>(tensor.shape.back());
        std::vector<float> numbers;
        for (std::int64_t i = 0; i < count; ++i) {
            double x = 0;
            if (name.ends_with("embed.weight")) {  // normal: Box and Muller's transform
                x = std::sqrt(-2.0 * std::log(1.0 - uniform())) * std::cos(6.283185307179586 * uniform());
            } else if (name.starts_with("generator")) {
                x = (2 * uniform() - 1) / std::sqrt(static_cast<double>(config.d_model));
            } else if (norm) {
                x = name.ends_with("weight") ? 1.0 : 0.0;
            } else if (matrix) {  // Glorot and Bengio 2010
                x = (2 * uniform() - 1) * std::sqrt(6.0 / (fan_in + fan_out));
            } else if (name.ends_with("linear1.bias")) {
                x = (2 * uniform() - 1) / std::sqrt(static_cast<double>(config.d_model));
            } else if (name.ends_with("linear2.bias")) {
                x = (2 * uniform() - 1) / std::sqrt(static_cast<double>(config.dim_feedforward));
            }
            numbers.push_back(static_cast<float>(x));
        }
        state_.write(name, std::as_bytes(std::span(numbers)));
    }
}

float Trainer::take_step(std::span<const std::int32_t> sources, std::span<const std::int32_t> targets) {
    std::vector<std::int32_t> padding;
    for (const std::int32_t id : sources) {
        padding.push_back(id == options_.pad ? 1 : 0);
    }
    program_->set("step", step_);
    program_->upload("source", sources);
    program_->upload("source_padding", padding);
    program_->upload("target", targets);
    program_->run();
    const float loss = program_->download("loss").front();
    if (!std::isfinite(loss)) {
        throw std::runtime_error("the loss of step " + std::to_string(step_) + " is not finite");
    }
    ++step_;
    return loss;
}

std::vector<vkf::HostTensor> Trainer::parameters(std::vector<std::vector<std::byte>>& bytes) const {
    std::vector<vkf::HostTensor> out;
    bytes.clear();
    for (const std::string& name : names_) {
        bytes.push_back(state_.read(name));
    }
    for (std::size_t i = 0; i < names_.size(); ++i) {
        out.push_back({names_[i], vkf::DType::f32, state_.find(names_[i])->shape, bytes[i]});
    }
    return out;
}

void Trainer::save(const std::filesystem::path& path) {
    const auto steps = static_cast<std::int32_t>(step_);
    state_.write(kSteps, std::as_bytes(std::span(&steps, 1)));
    vkf::save_state(path, state_);
}

void Trainer::resume(const std::filesystem::path& path) {
    vkf::restore_state(path, state_);
    std::int32_t steps = 0;
    const std::vector<std::byte> bytes = state_.read(kSteps);
    std::memcpy(&steps, bytes.data(), sizeof steps);
    if (steps < 0 || steps > options_.steps) {
        throw std::runtime_error(path.string() + ": has taken " + std::to_string(steps) + " of " +
                                 std::to_string(options_.steps) + " steps");
    }
    step_ = steps;
}
