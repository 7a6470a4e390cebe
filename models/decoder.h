// SPDX-License-Identifier: Apache-2.0
// The decoder-only Transformer with grouped-query attention and a KV cache: prompts in chunks, then a token a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../runtime/device/device.h"
#include "../runtime/device/program.h"
#include "checkpoint.h"
#include "decoder_config.h"

namespace vkf {

struct DecoderOptions {
    std::int64_t max_batch = 1;
    std::int64_t max_tokens =
        0;  ///< of a sequence, prompt included: what the cache holds; 0: what the model was trained for
    std::int64_t chunk = 256;                 ///< tokens of a prompt that one run takes
    std::int64_t candidates = 0;              ///< likeliest tokens that come back beside the likeliest one; 0: none
    WeightType kv = WeightType::f32;          ///< what keys and values are kept as: f32, f16, bf16 or int8
    Arithmetic arithmetic = Arithmetic::f32;  ///< what products of prompts may compute with: CompileOptions::arithmetic
    bool score = false;                       ///< Decoder::score() too
    bool profile = false;                     ///< timestamps around every dispatch
    LoadProgress progress =
        {};  ///< told after each chunk how many tokens of a prompt are read; what it throws ends that
};

/// What the programs of a Decoder do; they share weights, and of each layer the states cache.key and cache.value.
enum class DecoderRun : std::uint8_t {
    prompt,  ///< a chunk: token `next` (batch) i32 and the candidates after its last
    step,    ///< one token each: the same
    score,   ///< a chunk: `logits` (batch, tokens, vocabulary)
};

/// Inputs: tokens (batch, tokens) i32; where max_batch > 1, keys (batch, max_tokens) i32, 1 where the cache holds a token of the sequence, and
/// for learned positions positions (batch, tokens) i32. Sizes: batch, tokens (but for a step) and start, the tokens that the cache has.
/// A layer that sees only a window keeps window - 1 + chunk tokens, in a ring, where that is less than max_tokens; of each window its
/// runs have sizes windowN_kept and others, which Decoder sets.
VKF_API void describe_decoder(Graph& graph, const DecoderConfig& config, const DecoderOptions& options, DecoderRun run);

/// What a decoder needs of a checkpoint, under the names it has there, uploaded; matrices as this type (empty: as in the file; packed ones: their own).
/// Throws Error naming a tensor that is missing, has another shape or type, or that the decoder does not know and might change the numbers.
VKF_API Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderConfig& config,
                             std::optional<WeightType> matrices = {}, const LoadProgress& progress = {},
                             PackOn pack_on = PackOn::by_device);
/// Writes a folder from which load_decoder() gives the same without converting anything: config.json, what the tokenizer has, and
/// model.safetensors with the matrices packed as this type. Needs no device. Throws Error as load_decoder() does, and where the folder has a
/// model already or a file cannot be written.
VKF_API void save_decoder(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                          const DecoderConfig& config, std::optional<WeightType> matrices,
                          const LoadProgress& progress = {});
/// Bytes of them, before any is uploaded.
VKF_API std::uint64_t decoder_weight_bytes(const Device& device, const Checkpoint& checkpoint,
                                           const DecoderConfig& config, std::optional<WeightType> matrices = {});

/// Bytes that a model will take, by kind; nothing is allocated to know. Weights count as fp32: see decoder_weight_bytes(). What
/// arithmetic in int8 needs beside, rows of codes, is known with the weights: Decoder::memory().
struct DecoderMemory {
    std::uint64_t weights = 0, cache = 0, scratch = 0, constants = 0,
                  transfers = 0;  ///< transfers: inputs, outputs, their mirrors
    std::uint64_t total() const noexcept { return weights + cache + scratch + constants + transfers; }
};
VKF_API DecoderMemory plan_decoder(const Device& device, const DecoderConfig& config, const DecoderOptions& options);

/// Throws Error, with the numbers, where that is more than the device has.
VKF_API void require_memory(const Device& device, const DecoderMemory& memory);

/// Likely next tokens, best first.
struct Candidates {
    std::span<const std::int32_t> tokens;
    std::span<const float> logits;
};

/// Compiled for a device. Not for several threads at once.
class VKF_API Decoder {
public:
    /// Throws Error before it allocates anything where sizes do not fit the model, or its memory and the weights' the device.
    Decoder(const Device& device, const Weights& weights, const DecoderConfig& config,
            const DecoderOptions& options = {});
    Decoder(Decoder&&) noexcept;
    Decoder& operator=(Decoder&&) noexcept;
    ~Decoder();

    /// Forgets what the cache holds and reads prompts, of lengths of their own, in chunks. What a sequence answers does not depend on
    /// the others. Throws Error for an empty prompt, one that does not fit, or a token outside the vocabulary.
    void prompt(std::span<const std::vector<std::int32_t>> prompts);
    /// For one sequence.
    void prompt(const std::vector<std::int32_t>& tokens);
    /// One more token of each sequence: one submission, one wait, and from the second step on no allocation, of the host's neither.
    void step(std::span<const std::int32_t> tokens);

    /// After prompt() and step(): the likeliest next token of each sequence.
    std::span<const std::int32_t> next() const noexcept;
    /// The `candidates` likeliest of a sequence.
    Candidates candidates(std::size_t sequence) const;
    /// Tokens that may follow before the cache is full.
    std::int64_t room() const noexcept;

    /// Logits (tokens, vocabulary) after each token of a text, which the cache then holds. Needs DecoderOptions::score.
    std::vector<float> score(const std::vector<std::int32_t>& tokens);

    const DecoderConfig& config() const noexcept;
    const DecoderMemory& memory() const noexcept;
    Program& prompt_program() noexcept;
    Program& step_program() noexcept;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace vkf
