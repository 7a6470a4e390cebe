// SPDX-License-Identifier: Apache-2.0
// Encoder-only Transformers (models/families/bert.cpp) that turn texts into vectors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../runtime/device/device.h"
#include "../runtime/device/program.h"
#include "blocks/encoder_facts.h"
#include "files/checkpoint.h"
#include "model_memory.h"

namespace vkf {

class EncoderFamily;

/// An encoder as its config.json describes it. Cheap to copy; immutable. One that
/// read_text_encoder() did not give is of no use: whatever takes it throws Error.
class VKF_API TextEncoderModel {
public:
    const EncoderFacts& facts() const noexcept { return facts_; }

private:
    friend TextEncoderModel read_text_encoder(const Checkpoint& checkpoint);
    friend const EncoderFamily& family_of(const TextEncoderModel& model);
    friend bool takes_first_token(const TextEncoderModel& model) noexcept;

    std::shared_ptr<const EncoderFamily> family_;
    EncoderFacts facts_;
    bool takes_first_token_ = false;
};

/// Reads config.json, and what sentence-transformers puts beside it: 1_Pooling/config.json, which
/// says whether a text's vector is the mean of its hidden states, as without that file, or the
/// state of its first token; modules.json, which may name a Transformer, a Pooling and a Normalize;
/// and sentence_bert_config.json (or _roberta_, _distilbert_), which says how texts are cut. Throws
/// Error as read_decoder() does, other poolings and modules included.
VKF_API TextEncoderModel read_text_encoder(const Checkpoint& checkpoint);

struct TextEncoderOptions {
    std::int64_t max_batch = 8;
    /// most tokens of a text; 0: what the model was trained for
    std::int64_t max_tokens = 0;
    Arithmetic arithmetic = Arithmetic::f32;  ///< CompileOptions::arithmetic
};

/// Describes an encoder in `graph`. Inputs: tokens (batch, tokens) i32; keys (batch, tokens) i32, 0
/// where a text is padded and 1 elsewhere; shares (batch, 1, tokens) f32, 0 where a text is padded
/// and 1 / its length elsewhere. Outputs: hidden (batch, tokens, E); embedding (batch, E), the mean
/// of a text's hidden states, scaled to length 1. Where the model takes the first token's state,
/// that is scaled, and there is no input shares.
VKF_API void describe_text_encoder(Graph& graph, const TextEncoderModel& model, const TextEncoderOptions& options);

/// Uploads what an encoder needs of a checkpoint, for several encoders. LoadOptions::choose gets
/// matrices under the graph's names, without their data. Heads of other tasks are left out.
VKF_API Weights load_text_encoder(const Device& device, const Checkpoint& checkpoint, const TextEncoderModel& model,
                                  const LoadOptions& load = {});

/// An encoder is compiled for a device. It must not be used by several threads at once.
class VKF_API TextEncoder {
public:
    /// Loads its weights as load_text_encoder() does, and compiles its program meanwhile. Throws
    /// Error before it allocates anything where the sizes do not fit the model, or where weights
    /// and program do not fit the device's memory.
    TextEncoder(const Device& device, const Checkpoint& checkpoint, const TextEncoderModel& model,
                const TextEncoderOptions& options = {}, const LoadOptions& load = {});
    /// Uses weights that are loaded already. Throws Error likewise.
    TextEncoder(const Device& device, const Weights& weights, const TextEncoderModel& model,
                const TextEncoderOptions& options = {});

    /// A vector of length 1 (whether or not modules.json has a Normalize) for each text, given as
    /// ids with the special tokens around them. A text's vector does not depend on the other texts.
    /// Throws Error for an empty text, one that is too long, a token outside the vocabulary, or
    /// RoBERTa's padding id within a text; and naming the first text whose vector is not finite, as
    /// where weights are damaged.
    std::vector<std::vector<float>> embed(std::span<const std::vector<std::int32_t>> texts);

    const TextEncoderModel& model() const noexcept { return model_; }
    const ModelMemory& memory() const noexcept { return memory_; }
    Program& program() noexcept { return program_; }

private:
    void check(const std::vector<std::int32_t>& text) const;
    /// Runs as many texts as fit, and returns their vectors.
    std::vector<float> run(std::span<const std::vector<std::int32_t>> texts);

    TextEncoderModel model_;
    TextEncoderOptions options_;
    ModelMemory memory_;
    Program program_;
};

}  // namespace vkf
