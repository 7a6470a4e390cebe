// SPDX-License-Identifier: Apache-2.0
// A decoder's programs for given sizes: described, and their memory known, before a weight is
// loaded or a kernel compiled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "../runtime/device/weights.h"
#include "decoder_model.h"
#include "model_memory.h"

namespace vkf {

struct DecoderOptions {
    std::int64_t max_batch = 1;
    /// Of a sequence, prompt included: what the cache holds. 0: what the model was trained for.
    std::int64_t max_tokens = 0;
    std::int64_t chunk = 256;  ///< tokens of a prompt that one run takes
    /// Likeliest tokens that come back beside the likeliest one; 0: none.
    std::int64_t candidates = 0;
    /// What keys and values are kept as: f32, f16, bf16 or int8.
    WeightType kv = WeightType::f32;
    /// What products of prompts may compute with: CompileOptions::arithmetic.
    Arithmetic arithmetic = Arithmetic::f32;
    bool score = false;    ///< Decoder::score() too
    bool profile = false;  ///< timestamps around every dispatch
    /// Called after each chunk of a prompt with the tokens read and those in all. What it throws
    /// ends the reading.
    LoadProgress progress = {};
};

/// Each program is described and planned once, here; cheap to copy, and never changed.
class VKF_API DecoderPlan {
public:
    /// Throws Error where a size does not fit the model, or a tensor not the device; then the error
    /// names a `chunk` that fits, where there is one.
    DecoderPlan(const Device& device, const DecoderModel& model, const DecoderOptions& options = {});

    const DecoderModel& model() const noexcept;
    /// With what was left open filled in.
    const DecoderOptions& options() const noexcept;
    /// Inputs: tokens (batch, tokens) i32; where max_batch > 1, keys (batch, max_tokens) i32, 1
    /// where the cache holds a token of the sequence, and for learned positions positions (batch,
    /// tokens) i32. Outputs: next (batch) i32 and, where candidates are asked for, candidate_tokens
    /// and candidate_logits (batch, candidates); of a score logits (batch, tokens, vocabulary).
    /// Sizes: batch, tokens (but for a step) and start, the tokens that the cache has. A layer that
    /// sees only a window keeps window - 1 + chunk tokens, in a ring, where that is less than
    /// max_tokens; of each window its runs have sizes windowN_kept and others, which Decoder sets.
    const Graph& graph(DecoderTask task) const;

    /// What it will take, with weights counted as fp32. What arithmetic in int8 needs beside, rows
    /// of codes, is known with the weights: Decoder::memory().
    const ModelMemory& memory() const noexcept;
    /// The same with the weights as load_decoder() will keep them.
    ModelMemory memory(const Checkpoint& checkpoint, std::optional<WeightType> matrices = {}) const;

    struct Parts;  // the library's own

private:
    std::shared_ptr<const Parts> parts_;
};

/// What a decoder needs of a checkpoint, under the names it has there, uploaded. Matrices become
/// `matrices` (empty: as in the file; packed ones: their own). Throws Error naming a tensor that is
/// missing, has another shape or type, or that the model does not know and might change the
/// numbers.
VKF_API Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderPlan& plan,
                             std::optional<WeightType> matrices = {}, const LoadProgress& progress = {},
                             PackOn pack_on = PackOn::by_device);
/// The same without a plan: weights do not depend on its sizes.
VKF_API Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
                             std::optional<WeightType> matrices = {}, const LoadProgress& progress = {},
                             PackOn pack_on = PackOn::by_device);
/// Writes a folder from which load_decoder() gives the same without converting anything:
/// config.json, what the tokenizer has, and model.safetensors with the matrices packed as this
/// type. Needs no device. Throws Error as load_decoder() does, and where the folder has a model
/// already or a file cannot be written.
VKF_API void save_decoder(const std::filesystem::path& folder, const Checkpoint& checkpoint, const DecoderModel& model,
                          std::optional<WeightType> matrices, const LoadProgress& progress = {});

}  // namespace vkf
