// SPDX-License-Identifier: Apache-2.0
// What a program that runs a decoder needs to know about it, for every family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vkf {

/// The cache of one layer: for every token, a key and a value for each of its heads.
struct LayerCache {
    std::int64_t kv_heads = 0, head_dim = 0;
    std::int64_t window = 0;  ///< how many tokens a query sees, itself included; 0: all
};

struct DecoderFacts {
    std::string model_type = {};  ///< name of the family, as config.json says
    std::int64_t vocab_size = 0;
    std::int64_t width = 0;          ///< of the hidden states between layers
    std::int64_t max_positions = 0;  ///< tokens it was trained for
    std::vector<LayerCache> layers = {};
    std::vector<std::int32_t> end = {};      ///< ids that end a text
    std::optional<std::int32_t> begin = {};  ///< id that begins a text
    bool begins_texts = false;               ///< true: trained with `begin` before every text
    /// Fields of generation_config.json, of those known here, that change what transformers answers
    /// without draws, and that this library does not obey.
    std::vector<std::string> not_obeyed = {};
};

/// The task that a program of a decoder does.
enum class DecoderTask : std::uint8_t {
    /// Reads a chunk of tokens; answers with the likeliest next one after the last of them.
    prompt,
    step,   ///< reads one token of each sequence; answers likewise
    score,  ///< reads a chunk; answers with the logits after each of its tokens
};

}  // namespace vkf
