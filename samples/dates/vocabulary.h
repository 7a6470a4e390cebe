// SPDX-License-Identifier: Apache-2.0
// The model's config.json: its sizes, and the characters it reads and writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

/// Sizes of the encoder-decoder model, as config.json names them.
struct DatesConfig {
    int d_model = 0;
    int nhead = 0;
    int num_encoder_layers = 0;
    int num_decoder_layers = 0;
    int dim_feedforward = 0;
    bool norm_first = false;
    float layer_norm_eps = 0;
    int max_source_length = 0;  // ids, <eos> included
    int max_target_length = 0;  // ids, <sos> and <eos> included
    float embedding_scale = 0;
};

/// Characters and special tokens of a model, and the numbers it knows them by.
class Vocabulary {
public:
    /// Throws vkf::Error, naming the file, if it is missing, not JSON, or lacks or contradicts what
    /// the model needs.
    explicit Vocabulary(const std::filesystem::path& config);

    const DatesConfig& config() const noexcept { return config_; }
    std::size_t size() const noexcept { return tokens_.size(); }
    std::int32_t pad() const noexcept { return pad_; }
    std::int32_t sos() const noexcept { return sos_; }
    std::int32_t eos() const noexcept { return eos_; }

    /// One id per character of UTF-8 text, then <eos>. Throws vkf::Error naming a character that
    /// the model does not know, or the length if the text has more than max_source_length - 1
    /// characters.
    std::vector<std::int32_t> encode(std::string_view text) const;

    /// The text up to the first <eos>, without <sos> and <pad>. Throws vkf::Error if an id is
    /// outside the vocabulary.
    std::string decode(std::span<const std::int32_t> ids) const;

    /// The character of an id, or the name of a special token ("<eos>").
    const std::string& token(std::int32_t id) const;

private:
    DatesConfig config_;
    std::vector<std::string> tokens_;
    std::unordered_map<std::string, std::int32_t> ids_;
    std::int32_t pad_ = 0;
    std::int32_t sos_ = 0;
    std::int32_t eos_ = 0;
};
