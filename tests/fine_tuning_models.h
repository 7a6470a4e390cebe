// SPDX-License-Identifier: Apache-2.0
// What the tests of fine-tuning share: a checkpoint's model, what PyTorch computed, options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/decoder_models.h"
#include "tests/fixtures.h"
#include "train/fine_tuner.h"

namespace vkf::test {

using TrainingTexts = std::vector<std::vector<std::int32_t>>;

/// What PyTorch computed for one checkpoint.
struct ExpectedTraining {
    Safetensors file;
    TrainingTexts texts;

    explicit ExpectedTraining(const std::filesystem::path& folder) : file(folder / "training.safetensors") {
        for (std::size_t i = 0; file.find("text." + std::to_string(i)) != nullptr; ++i) {
            texts.push_back(values_of<std::int32_t>(file.at("text." + std::to_string(i))));
        }
    }
    TrainingTexts batch(std::int64_t step) const {
        const auto first = static_cast<std::size_t>(2 * step);
        return {texts[first % texts.size()], texts[(first + 1) % texts.size()]};
    }
    std::vector<float> numbers(const std::string& name) const { return values_of<float>(file.at(name)); }
};

/// The optimizer of make_training_cases.py.
inline TrainerOptions cosine_adamw() {
    return {.optimizer = AdamW{.learning_rate = 1e-3, .weight_decay = 0.1},
            .schedule = {.kind = Schedule::Kind::cosine, .warmup = 3, .steps = 20},
            .max_norm = 1.0f};
}

inline FineTuneOptions small(TrainerOptions trainer = cosine_adamw()) {
    return {.max_batch = 2, .max_tokens = 24, .trainer = std::move(trainer)};
}

inline std::vector<std::byte> all_bytes(FineTuner& tuner) {
    std::vector<std::byte> all;
    for (const StoredTensor& t : tuner.trainer().state().layout().tensors()) {
        const std::vector<std::byte> bytes = tuner.trainer().state().read(t.name);
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

struct TunedModel {
    Checkpoint checkpoint;
    DecoderModel model;

    explicit TunedModel(const char* name) : checkpoint(kModels / name), model(read_decoder(checkpoint)) {}
    FineTuner tuner(const FineTuneOptions& options = small()) const {
        return FineTuner(device(), checkpoint, model, options);
    }
};

}  // namespace vkf::test
