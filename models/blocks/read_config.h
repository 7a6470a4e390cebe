// SPDX-License-Identifier: Apache-2.0
// Fields of config.json that several families have.
#pragma once

#include <functional>
#include <vector>

#include "layers/projections.h"
#include "models/blocks/decoder_facts.h"
#include "models/files/config_reader.h"

namespace vkf {

/// The sizes that Llama and what came after it call by the same names.
struct DecoderSizes {
    std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, layers = 0, max_positions = 0;
    HeadSizes heads;
};
/// `max_positions` and `kv_heads` are for a file that does not say; no kv_heads, or null in the
/// file: as many as there are heads.
DecoderSizes read_sizes(ConfigReader& reader, std::int64_t max_positions, std::int64_t kv_heads = 0);

/// Reads the number, 0 or more, that a norm adds to the mean square.
float read_epsilon(ConfigReader& reader, const std::string& field, double otherwise);
/// Reads the softcap of scores or logits; null is 0, which stands for none.
float read_softcap(ConfigReader& reader, const std::string& field, double otherwise);

/// Reads a number x and gives the scale 1 / sqrt(x).
float read_scale(ConfigReader& reader, const std::string& field, double otherwise);

/// The defaults that transformers takes for missing fields of RoPE.
struct RopeDefaults {
    std::int64_t head_dim = 0;
    std::int64_t max_positions = 0;
    bool partial = false;  ///< partial_rotary_factor may be less than 1
};
/// rope_parameters {rope_type, rope_theta, ...} of transformers 5, or rope_theta beside
/// rope_scaling {type or rope_type, ...}.
Rope read_rope(ConfigReader& reader, const RopeDefaults& defaults);
/// The fields of one rope_parameters or rope_scaling. `from` has what is said elsewhere.
Rope read_rope_object(ConfigReader& object, const Rope& from, const RopeDefaults& defaults);

/// Throws naming head_dim where a head has an odd number of dimensions that turn.
void check_pairs(const ConfigReader& reader, const Rope& rope);

/// Reads a second name of a field, which may be there with the first one's value only.
void read_again(ConfigReader& reader, const std::string& name, const std::string& first, std::int64_t value);

/// sliding_window: how many tokens a query sees; null is 0, which stands for all.
std::int64_t read_window(ConfigReader& reader, std::int64_t otherwise);
/// The same, where a window of no keys is refused: only null says that there is none.
std::int64_t read_window_or_null(ConfigReader& reader, std::int64_t otherwise);
/// Reads how many tokens each layer sees; 0: all. layer_types says which layers slide or, where it
/// is missing, `slides(layer)` does; those see `window` tokens.
std::vector<std::int64_t> read_windows(ConfigReader& reader, std::int64_t layers, std::int64_t window,
                                       const std::function<bool(std::int64_t)>& slides);
/// Reads the windows of Qwen 2 and 3: where use_sliding_window says so, layers from
/// max_window_layers on see one.
std::vector<std::int64_t> read_late_windows(ConfigReader& reader, std::int64_t layers);

/// The caches of layers that differ in their windows alone; no windows: all see everything.
std::vector<LayerCache> layer_caches(const DecoderSizes& sizes, const std::vector<std::int64_t>& windows = {});

}  // namespace vkf
