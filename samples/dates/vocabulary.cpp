// SPDX-License-Identifier: Apache-2.0
#include "vocabulary.h"

#include <vkformer/vkformer.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;

/// Throws std::runtime_error unless the member is a whole number from `least` to `most`.
int whole_number(const json& config, const char* name, int least, int most) {
    const json& value = config.at(name);
    if (!value.is_number_integer() || value < least || value > most) {
        throw std::runtime_error(std::string(name) + " is " + value.dump() + ", not a whole number from " +
                                 std::to_string(least) + " to " + std::to_string(most));
    }
    return value.get<int>();
}

void require_text(const json& config, const char* name, const char* expected) {
    if (config.at(name) != expected) {
        throw std::runtime_error(std::string(name) + " is " + config.at(name).dump() +
                                 ", but this sample knows only \"" + expected + "\"");
    }
}

DatesConfig read_sizes(const json& config) {
    constexpr int kMost = 65536;
    DatesConfig sizes;
    sizes.d_model = whole_number(config, "d_model", 1, kMost);
    sizes.nhead = whole_number(config, "nhead", 1, kMost);
    sizes.num_encoder_layers = whole_number(config, "num_encoder_layers", 1, kMost);
    sizes.num_decoder_layers = whole_number(config, "num_decoder_layers", 1, kMost);
    sizes.dim_feedforward = whole_number(config, "dim_feedforward", 1, kMost);
    sizes.max_source_length = whole_number(config, "max_source_length", 1, kMost);
    sizes.max_target_length = whole_number(config, "max_target_length", 2, kMost);
    sizes.norm_first = config.at("norm_first").get<bool>();
    sizes.layer_norm_eps = config.at("layer_norm_eps").get<float>();
    sizes.embedding_scale = config.at("embedding_scale").get<float>();
    require_text(config, "activation", "relu");
    require_text(config, "position", "sinusoidal");
    if (sizes.d_model % sizes.nhead != 0) throw std::runtime_error("nhead does not divide d_model");
    return sizes;
}

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

Vocabulary::Vocabulary(const std::filesystem::path& config) {
    const std::string file = config.string();
    std::ifstream stream(config, std::ios::binary);
    if (!stream) throw vkf::Error("cannot open the model's configuration", file);
    try {
        const json root = json::parse(stream);
        config_ = read_sizes(root);
        tokens_ = root.at("vocab").get<std::vector<std::string>>();
        for (const std::string& token : tokens_) {
            if (!ids_.emplace(token, static_cast<std::int32_t>(ids_.size())).second) {
                throw std::runtime_error("vocab holds " + json(token).dump() + " twice");
            }
        }
        if (tokens_.empty()) throw std::runtime_error("vocab is empty");
        const int last = static_cast<int>(tokens_.size()) - 1;
        pad_ = whole_number(root, "pad_token_id", 0, last);
        sos_ = whole_number(root, "sos_token_id", 0, last);
        eos_ = whole_number(root, "eos_token_id", 0, last);
        if (pad_ == sos_ || sos_ == eos_ || eos_ == pad_) throw std::runtime_error("special tokens share an id");
    } catch (const std::exception& error) {
        throw vkf::Error(error.what(), file);
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
    ids.push_back(eos_);
    if (ids.size() > static_cast<std::size_t>(config_.max_source_length)) {
        throw vkf::Error(quoted + " has " + std::to_string(ids.size() - 1) + " characters; the model reads at most " +
                         std::to_string(config_.max_source_length - 1));
    }
    return ids;
}

std::string Vocabulary::decode(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const std::int32_t id : ids) {
        if (id == eos_) break;
        if (id != sos_ && id != pad_) text += token(id);
    }
    return text;
}

const std::string& Vocabulary::token(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) {
        throw vkf::Error("token " + std::to_string(id) + " is outside the vocabulary of " +
                         std::to_string(tokens_.size()));
    }
    return tokens_[static_cast<std::size_t>(id)];
}
