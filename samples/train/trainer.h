// SPDX-License-Identifier: Apache-2.0
// The model, where it begins, and its training: vkf::Trainer on the loss of a batch of dates.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct DatesOptions {
    std::int64_t batch = 32, source = 32, target = 12;
    std::int64_t steps = 10000, warmup = 200;
    double learning_rate = 2e-3;
    std::uint64_t seed = 1;
    std::int32_t pad = 0;
};

class DatesTrainer {
public:
    /// Parameters at random, as torch.nn.Transformer and torch.nn.Embedding begin.
    DatesTrainer(const vkf::Device& device, const vkf::EncoderDecoderConfig& config, const DatesOptions& options);

    /// Number of the next step, from 0.
    std::int64_t step() const { return trainer_->step(); }
    /// Takes a step on sources (batch, source) and targets (batch, target), and returns the loss
    /// before it. Throws as vkf::Trainer::take_step() does.
    float take_step(std::span<const std::int32_t> sources, std::span<const std::int32_t> targets);

    /// Parameters under the names of the model's file. They live as long as `bytes`.
    std::vector<vkf::HostTensor> parameters(std::vector<std::vector<std::byte>>& bytes) const;
    void save(const std::filesystem::path& path) { trainer_->save(path); }
    /// Goes on where save() was called. Throws std::runtime_error where more steps were taken then
    /// than this run takes.
    void resume(const std::filesystem::path& path);

private:
    void initialize(const vkf::EncoderDecoderConfig& config);

    DatesOptions options_;
    std::unique_ptr<vkf::Trainer> trainer_;
};
