// SPDX-License-Identifier: Apache-2.0
// The config.json of samples/dates and samples/train: the model's sizes, and the characters it
// reads and writes.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

/// Sizes of the encoder-decoder model, as config.json names them, and its tokens.
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
    std::vector<std::string> vocab;
    std::int32_t pad = 0, sos = 0, eos = 0;
    std::string text;  // the file
};

/// Throws std::runtime_error unless the member is a whole number from `least` to `most`.
inline int whole_number(const nlohmann::json& config, const char* name, int least, int most) {
    const nlohmann::json& value = config.at(name);
    if (!value.is_number_integer() || value < least || value > most) {
        throw std::runtime_error(std::string(name) + " is " + value.dump() + ", not a whole number from " +
                                 std::to_string(least) + " to " + std::to_string(most));
    }
    return value.get<int>();
}

inline void require_text(const nlohmann::json& config, const char* name, const char* expected) {
    if (config.at(name) != expected) {
        throw std::runtime_error(std::string(name) + " is " + config.at(name).dump() +
                                 ", but this sample knows only \"" + expected + "\"");
    }
}

inline DatesConfig read_sizes(const nlohmann::json& config) {
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

inline DatesConfig read_config(const nlohmann::json& root) {
    DatesConfig config = read_sizes(root);
    config.text = root.dump(1);
    config.vocab = root.at("vocab").get<std::vector<std::string>>();
    std::set<std::string> seen;
    for (const std::string& token : config.vocab) {
        if (!seen.insert(token).second) {
            throw std::runtime_error("vocab holds " + nlohmann::json(token).dump() + " twice");
        }
    }
    if (config.vocab.empty()) throw std::runtime_error("vocab is empty");
    const int last = static_cast<int>(config.vocab.size()) - 1;
    config.pad = whole_number(root, "pad_token_id", 0, last);
    config.sos = whole_number(root, "sos_token_id", 0, last);
    config.eos = whole_number(root, "eos_token_id", 0, last);
    if (config.pad == config.sos || config.sos == config.eos || config.eos == config.pad) {
        throw std::runtime_error("special tokens share an id");
    }
    return config;
}

/// Throws vkf::Error, naming the file, if it is missing, not JSON, or lacks or contradicts what the
/// model needs.
inline DatesConfig read_dates_config(const std::filesystem::path& path) {
    const std::string file = path.string();
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw vkf::Error("cannot open the model's configuration", file);
    try {
        return read_config(nlohmann::json::parse(stream));
    } catch (const std::exception& error) {
        throw vkf::Error(error.what(), file);
    }
}

/// The model that the file describes.
inline vkf::EncoderDecoderConfig model_config(const DatesConfig& c) {
    vkf::EncoderDecoderConfig out;
    out.d_model = c.d_model;
    out.nhead = c.nhead;
    out.num_encoder_layers = c.num_encoder_layers;
    out.num_decoder_layers = c.num_decoder_layers;
    out.dim_feedforward = c.dim_feedforward;
    out.norm_first = c.norm_first;
    out.layer_norm_eps = c.layer_norm_eps;
    out.embedding_scale = c.embedding_scale;
    out.max_source = c.max_source_length;
    out.max_target = c.max_target_length;
    out.source_vocabulary = out.target_vocabulary = static_cast<std::int64_t>(c.vocab.size());
    return out;
}
