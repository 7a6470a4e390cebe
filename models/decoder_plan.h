// SPDX-License-Identifier: Apache-2.0
// A decoder's programs for given sizes: described, and their memory known, before a weight is
// loaded or a kernel compiled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

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
    /// For weights as load_decoder() will keep them: matrices as `matrices` (empty: as in the file;
    /// packed ones: their own). No byte of them is read. Throws Error where a size does not fit the
    /// model, as load_decoder() does, or where a tensor does not fit the device; then the error
    /// names a `chunk` that fits, where there is one.
    DecoderPlan(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
                const DecoderOptions& options = {}, std::optional<WeightType> matrices = {});
    /// For weights that lie like this: Weights::layout(). None stands for weights in fp32.
    DecoderPlan(const Device& device, const WeightLayout& weights, const DecoderModel& model,
                const DecoderOptions& options = {});

    const DecoderModel& model() const noexcept;
    /// With what was left open filled in.
    const DecoderOptions& options() const noexcept;
    /// What matrices are to be kept as; empty: as in the file.
    std::optional<WeightType> matrices() const noexcept;
    /// Where the weights will lie.
    const WeightLayout& weights() const noexcept;
    /// Those that were described: prompt, step and, where it was asked for, score.
    std::vector<DecoderTask> tasks() const;
    /// Inputs: tokens (batch, tokens) i32; where max_batch > 1, keys (batch, max_tokens) i32, 1
    /// where the cache holds a token of the sequence, and for learned positions positions (batch,
    /// tokens) i32. Outputs: next (batch) i32 and, where candidates are asked for, candidate_tokens
    /// and candidate_logits (batch, candidates); of a score logits (batch, tokens, vocabulary).
    /// Sizes: batch, tokens (but for a step) and start, the tokens that the cache has. A layer that
    /// sees only a window keeps window - 1 + chunk tokens, in a ring, where that is less than
    /// max_tokens; of each window its runs have sizes windowN_kept and others, which Decoder sets.
    const Graph& graph(DecoderTask task) const;

    /// What the same becomes on the device.
    const Plan& plan(DecoderTask task) const;
    /// What it will take of the device, to the byte.
    const ModelMemory& memory() const noexcept;

    struct Parts;  // the library's own

private:
    std::shared_ptr<const Parts> parts_;
};

/// What a decoder needs of a checkpoint, under the names it has there, uploaded as the plan has it.
/// Throws Error naming a tensor that is missing, has another shape or type, or that the model does
/// not know and might change the numbers.
VKF_API Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderPlan& plan,
                             const LoadProgress& progress = {}, PackOn pack_on = PackOn::by_device);
/// The same without a plan, for several decoders: weights do not depend on its sizes. Matrices
/// become `matrices` (empty: as in the file; packed ones: their own).
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
