// SPDX-License-Identifier: Apache-2.0
#include "vocabulary.h"

#include <vkformer/vkformer.h>

#include <array>
#include <cstdio>

namespace {

/// Bytes of the UTF-8 character at the front of a text that is not empty; 0 if there is no
/// well-formed one.
std::size_t character_bytes(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text.front());
    const std::size_t bytes = lead < 0x80   ? 1
                              : lead < 0xC2 ? 0
                              : lead < 0xE0 ? 2
                              : lead < 0xF0 ? 3
                              : lead < 0xF5 ? 4
                                            : 0;
    if (bytes > text.size()) return 0;
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) return 0;
    }
    return bytes;
}

/// A well-formed character as a person and as Unicode would name it: 'é' (U+00E9).
std::string character_name(std::string_view character) {
    const auto lead = static_cast<unsigned char>(character.front());
    unsigned code = character.size() == 1 ? lead : lead & (0x7FU >> character.size());
    for (const char c : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(c) & 0x3FU);
    std::array<char, 16> number{};
    std::snprintf(number.data(), number.size(), "U+%04X", code);
    const bool printable = code >= 0x20 && (code < 0x7F || code >= 0xA0);
    return printable ? "'" + std::string(character) + "' (" + number.data() + ")" : std::string(number.data());
}

}  // namespace

Vocabulary::Vocabulary(const std::filesystem::path& config) : config_(read_dates_config(config)) {
    for (const std::string& token : config_.vocab) {
        ids_.emplace(token, static_cast<std::int32_t>(ids_.size()));
    }
}

std::vector<std::int32_t> Vocabulary::encode(std::string_view text) const {
    const std::string quoted = "\"" + std::string(text) + "\"";
    std::vector<std::int32_t> ids;
    for (std::size_t offset = 0; offset < text.size();) {
        const std::string place = "character " + std::to_string(ids.size() + 1) + " of " + quoted;
        const std::size_t bytes = character_bytes(text.substr(offset));
        if (bytes == 0) throw vkf::Error(place + " is not UTF-8");
        const std::string character(text.substr(offset, bytes));
        const auto found = ids_.find(character);
        if (found == ids_.end()) {
            throw vkf::Error(place + " is " + character_name(character) + ", which the model does not know");
        }
        ids.push_back(found->second);
        offset += bytes;
    }
    ids.push_back(eos());
    if (ids.size() > static_cast<std::size_t>(config_.max_source_length)) {
        throw vkf::Error(quoted + " has " + std::to_string(ids.size() - 1) + " characters; the model reads at most " +
                         std::to_string(config_.max_source_length - 1));
    }
    return ids;
}

std::string Vocabulary::decode(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const std::int32_t id : ids) {
        if (id == eos()) break;
        if (id != sos() && id != pad()) text += token(id);
    }
    return text;
}

const std::string& Vocabulary::token(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= config_.vocab.size()) {
        throw vkf::Error("token " + std::to_string(id) + " is outside the vocabulary of " +
                         std::to_string(config_.vocab.size()));
    }
    return config_.vocab[static_cast<std::size_t>(id)];
}
