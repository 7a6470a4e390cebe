// SPDX-License-Identifier: Apache-2.0
#include "trainer.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>

namespace {

/// Teacher forcing: the decoder is given each target without its last token, and must say it
/// without its first.
vkf::Value describe_loss(vkf::Graph& graph, const vkf::EncoderDecoderConfig& config, const DatesOptions& o) {
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
    return vkf::cross_entropy(logits, wanted, {.ignore_index = o.pad});
}

}  // namespace

DatesTrainer::DatesTrainer(const vkf::Device& device, const vkf::EncoderDecoderConfig& config,
                           const DatesOptions& options)
    : options_(options) {
    vkf::Graph graph;
    const vkf::Value loss = describe_loss(graph, config, options_);
    trainer_ = std::make_unique<vkf::Trainer>(
        device, graph, loss, vkf::trainable(graph),
        vkf::TrainerOptions{
            .optimizer = vkf::AdamW{.learning_rate = options_.learning_rate, .beta2 = 0.98, .weight_decay = 0.0},
            .schedule = {.kind = vkf::Schedule::Kind::cosine, .warmup = options_.warmup, .steps = options_.steps},
            .max_norm = 1.0f});
    initialize(config);
}

void DatesTrainer::initialize(const vkf::EncoderDecoderConfig& config) {
    std::mt19937_64 random(options_.seed);
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    for (const std::string& name : trainer_->parameters()) {
        const vkf::StoredTensor& tensor = *trainer_->state().find(name);
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
        trainer_->state().write(name, std::as_bytes(std::span(numbers)));
    }
}

float DatesTrainer::take_step(std::span<const std::int32_t> sources, std::span<const std::int32_t> targets) {
    std::vector<std::int32_t> padding;
    for (const std::int32_t id : sources) {
        padding.push_back(id == options_.pad ? 1 : 0);
    }
    vkf::Program& program = trainer_->program();
    program.upload("source", sources);
    program.upload("source_padding", padding);
    program.upload("target", targets);
    return trainer_->take_step().loss;
}

std::vector<vkf::HostTensor> DatesTrainer::parameters(std::vector<std::vector<std::byte>>& bytes) const {
    const std::vector<std::string>& names = trainer_->parameters();
    std::vector<vkf::HostTensor> out;
    bytes.clear();
    for (const std::string& name : names) {
        bytes.push_back(trainer_->state().read(name));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        out.push_back({names[i], vkf::DType::f32, trainer_->state().find(names[i])->shape, bytes[i]});
    }
    return out;
}

void DatesTrainer::resume(const std::filesystem::path& path) {
    trainer_->resume(path);
    if (step() > options_.steps) {
        throw std::runtime_error(path.string() + ": has taken " + std::to_string(step()) + " steps, more than " +
                                 std::to_string(options_.steps));
    }
}
