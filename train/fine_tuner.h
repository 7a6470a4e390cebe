// SPDX-License-Identifier: Apache-2.0
// Fine-tuning of decoders from Hugging Face folders: all parameters, or LoRA adapters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../layers/lora.h"
#include "../models/decoder_model.h"
#include "../runtime/compile/load_options.h"
#include "trainer.h"

namespace vkf {

struct FineTuneOptions {
    std::int64_t max_batch = 1;  ///< most texts of a step
    /// Texts of a step that run together; the gradients of the rest are added up. 0: all.
    std::int64_t micro_batch = 0;
    std::int64_t max_tokens = 0;  ///< most tokens of a text; 0: as many as the model takes
    /// Adapters are trained, and the model's own weights stay as they are; otherwise all of these
    /// are trained, in fp32.
    std::optional<LoraOptions> lora = {};
    /// Of the weights that stay: they may be packed (QLoRA). Without `lora` none stay: `matrices`
    /// other than f32, and `choose`, are an Error, and `progress` tells of the parameters.
    LoadOptions load = {};
    std::uint64_t seed = 0;  ///< of the adapters' first numbers
    TrainerOptions trainer = {};
};

class VKF_API FineTuner {
public:
    /// Loads the checkpoint and compiles the step. Throws Error as load_decoder() and Trainer do.
    FineTuner(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
              const FineTuneOptions& options = {});
    FineTuner(FineTuner&&) noexcept;
    FineTuner& operator=(FineTuner&&) noexcept;
    ~FineTuner();

    /// Takes a step on texts of token ids, each from its beginning. The loss is the mean
    /// cross-entropy of every token of the texts but the first of each. Throws Error for a text of
    /// less than two tokens or too many, for a token outside the vocabulary, and as
    /// Trainer::take_step() does.
    TrainingStep take_step(std::span<const std::vector<std::int32_t>> texts);

    /// Its program, its number of the next step, its checkpoints. These hold A and B of adapters,
    /// and not LoraOptions::alpha: go on under that of the run that wrote one.
    Trainer& trainer() noexcept;

    /// Writes what was trained: the model's folder with its parameters in fp32, or PEFT's files of
    /// the adapters. What is there is replaced. Throws Error naming the file that cannot be
    /// written, or the config.json that the model was read from, where it is gone.
    void save(const std::filesystem::path& folder) const;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace vkf
