// SPDX-License-Identifier: Apache-2.0
// The characters that a model reads and writes, as its config.json has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../dates_config.h"

/// Characters and special tokens of a model, and the numbers it knows them by.
class Vocabulary {
public:
    /// Throws vkf::Error, naming the file, if it is missing, not JSON, or lacks or contradicts what
    /// the model needs.
    explicit Vocabulary(const std::filesystem::path& config);

    const DatesConfig& config() const noexcept { return config_; }
    std::size_t size() const noexcept { return config_.vocab.size(); }
    std::int32_t pad() const noexcept { return config_.pad; }
    std::int32_t sos() const noexcept { return config_.sos; }
    std::int32_t eos() const noexcept { return config_.eos; }

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
    std::unordered_map<std::string, std::int32_t> ids_;
};
