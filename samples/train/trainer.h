// SPDX-License-Identifier: Apache-2.0
// One program a step: the loss of a batch, its gradients, clipping, and AdamW's update.
#pragma once

#include <vkformer/vkformer.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

struct TrainerOptions {
    std::int64_t batch = 128, source = 32, target = 12;
    std::int64_t steps = 4000, warmup = 100;
    double learning_rate = 2e-3;
    std::uint64_t seed = 1;
    std::int32_t pad = 0;
};

class Trainer {
public:
    /// Parameters at random, as torch.nn.Transformer and torch.nn.Embedding begin.
    Trainer(const vkf::Device& device, const vkf::EncoderDecoderConfig& config, const TrainerOptions& options);

    /// Number of the next step, from 0.
    std::int64_t step() const { return step_; }
    /// Takes a step on sources (batch, source) and targets (batch, target), and returns the loss
    /// before it. Throws std::runtime_error where that is not finite.
    float take_step(std::span<const std::int32_t> sources, std::span<const std::int32_t> targets);

    /// Parameters under the names of the model's file. They live as long as `bytes`.
    std::vector<vkf::HostTensor> parameters(std::vector<std::vector<std::byte>>& bytes) const;
    /// Writes all that a later resume() needs: parameters, moments, and the number of the step.
    void save(const std::filesystem::path& path);
    /// Goes on where save() was called, bit for bit.
    void resume(const std::filesystem::path& path);

private:
    void initialize(const vkf::EncoderDecoderConfig& config);

    TrainerOptions options_;
    vkf::Graph graph_;
    vkf::State state_;
    std::unique_ptr<vkf::Program> program_;
    std::vector<std::string> names_;  ///< of the parameters
    std::int64_t step_ = 0;
};
