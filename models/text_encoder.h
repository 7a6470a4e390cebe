// SPDX-License-Identifier: Apache-2.0
// Encoder-only Transformers of the BERT family (Devlin et al. 2019) that give texts as vectors: bert, roberta, xlm-roberta, distilbert.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../ops/ops.h"
#include "../runtime/device/device.h"
#include "../runtime/device/program.h"
#include "checkpoint.h"

namespace vkf {

/// Where a checkpoint keeps parameters; "" where there is none.
struct TextEncoderNames {
    std::string base = "bert.";  ///< some files leave it out
    std::string words = "embeddings.word_embeddings", positions = "embeddings.position_embeddings";
    std::string token_types = "embeddings.token_type_embeddings", norm = "embeddings.LayerNorm";
    std::string layers = "encoder.layer";
    // below layers.N
    std::string query = "attention.self.query", key = "attention.self.key", value = "attention.self.value";
    std::string attention_output = "attention.output.dense", attention_norm = "attention.output.LayerNorm";
    std::string up = "intermediate.dense", down = "output.dense", output_norm = "output.LayerNorm";
};

struct TextEncoderConfig {
    std::string model_type;
    std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0;
    std::int64_t position_rows = 0;   ///< of the table of positions
    std::int64_t first_position = 0;  ///< row of the first token (RoBERTa's begin after its padding id)
    std::int64_t token_types = 0;
    float norm_eps = 1e-12f;
    Activation activation = Activation::gelu;
    TextEncoderNames names;

    std::int64_t max_tokens() const noexcept { return position_rows - first_position; }
};

/// Reads config.json. Throws Error as read_decoder_config() does.
VKF_API TextEncoderConfig read_text_encoder_config(const Checkpoint& checkpoint);

struct TextEncoderOptions {
    std::int64_t max_batch = 8;
    std::int64_t max_tokens = 0;              ///< of a text; 0: what the model was trained for
    Arithmetic arithmetic = Arithmetic::f32;  ///< CompileOptions::arithmetic
};

/// Inputs: tokens (batch, tokens) i32; keys (batch, tokens) i32, 0 where a text is padded; shares (batch, 1, tokens), 1 / its length where it is not.
/// Outputs: hidden (batch, tokens, E); embedding (batch, E), the mean of a text's hidden states, of length 1.
VKF_API void describe_text_encoder(Graph& graph, const TextEncoderConfig& config, const TextEncoderOptions& options);

/// What an encoder needs of a checkpoint, uploaded; matrices as this type (empty: as in the file). Heads of other tasks are left out.
VKF_API Weights load_text_encoder(const Device& device, const Checkpoint& checkpoint, const TextEncoderConfig& config,
                                  std::optional<WeightType> matrices = {});

/// Compiled for a device. Not for several threads at once.
class VKF_API TextEncoder {
public:
    /// Throws Error before it allocates anything where sizes do not fit the model, or its memory and the weights' the device.
    TextEncoder(const Device& device, const Weights& weights, const TextEncoderConfig& config,
                const TextEncoderOptions& options = {});

    /// A vector of length 1 for each text, given as ids with the special tokens around them. What a text gives does not depend on the
    /// others. Throws Error for an empty text, one that is too long, or a token outside the vocabulary.
    std::vector<std::vector<float>> embed(std::span<const std::vector<std::int32_t>> texts);

    const TextEncoderConfig& config() const noexcept { return config_; }
    Program& program() noexcept { return program_; }

private:
    void check(const std::vector<std::int32_t>& text) const;
    /// As many texts as fit, and their vectors.
    std::vector<float> run(std::span<const std::vector<std::int32_t>> texts);

    TextEncoderConfig config_;
    TextEncoderOptions options_;
    Program program_;
};

}  // namespace vkf
