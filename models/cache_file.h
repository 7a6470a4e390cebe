// SPDX-License-Identifier: Apache-2.0
// The caches of a decoder in a safetensors file, with what it knows of the texts that they hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/decoder_batch.h"
#include "models/files/safetensors.h"
#include "runtime/device/state.h"

namespace vkf {

/// Writes the rows in use of each cache, under the cache's name: (batch, rows, kv heads, width).
/// Beside them:
///   decoder.sizes (3) i64              the vocabulary; the tokens read of each sequence, padding
///                                      included; 1 where they are read to their end, else 0
///   decoder.layers (layers, 3) i64     kv heads, head_dim and window of each
///   decoder.padding (batch) i32        tokens in front of each sequence
///   decoder.next (batch or 0) i32, decoder.candidate_tokens (batch or 0, candidates) i32,
///   decoder.candidate_logits f32       DecoderAnswers
/// The metadata say model_type, kv (the type of keys and values) and vkformer.cache, the version of
/// this format: 1.
void save_cache_file(const std::filesystem::path& path, const DecoderPlan& plan, const State& caches,
                     const DecoderBatch& batch, const DecoderAnswers& answers);

/// A file that fits a decoder. Nothing in it is trusted.
class CacheFile {
public:
    /// Maps the file. Throws Error, naming the file and the tensor, where it is damaged or does not
    /// fit the decoder of this plan and these caches.
    CacheFile(const std::filesystem::path& path, const DecoderPlan& plan, const State& caches);

    /// Tokens of each sequence, padding included.
    std::int64_t length() const noexcept { return length_; }
    bool finished() const noexcept { return finished_; }
    const std::vector<std::size_t>& padding() const noexcept { return padding_; }
    /// The answers of the file, cut to as many candidates as the plan has.
    const DecoderAnswers& answers() const noexcept { return answers_; }
    void write(const State& caches) const;

private:
    void check_model(const DecoderPlan& plan) const;
    void check_layers(const DecoderFacts& facts) const;
    void read_sizes(const DecoderPlan& plan);
    void read_answers(const DecoderPlan& plan);
    void check_caches(const DecoderOptions& options, const State& caches) const;
    /// The numbers of a tensor of this type and shape; -1 stands for any size.
    template <class T>
    std::vector<T> numbers(const char* name, DType dtype, const std::vector<std::int64_t>& shape) const;
    [[noreturn]] void refuse(const std::string& what) const;

    Safetensors file_;
    std::int64_t length_ = 0;
    bool finished_ = false;
    std::vector<std::size_t> padding_;
    DecoderAnswers answers_;
};

}  // namespace vkf
