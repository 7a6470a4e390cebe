// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/read_config.h"

#include <cmath>

namespace vkf {

using nlohmann::json;

DecoderSizes read_sizes(ConfigReader& reader, std::int64_t max_positions, std::int64_t kv_heads) {
    DecoderSizes s;
    s.vocab_size = reader.size("vocab_size");
    s.hidden_size = reader.size("hidden_size");
    s.intermediate_size = reader.size("intermediate_size");
    s.layers = reader.layers("num_hidden_layers");
    s.heads.heads = reader.size("num_attention_heads");
    const bool every_head = kv_heads == 0 || reader.is_null("num_key_value_heads");
    s.heads.kv_heads = reader.integer("num_key_value_heads", every_head ? s.heads.heads : kv_heads, 1);
    if (!reader.has("head_dim") && s.heads.heads > s.hidden_size) {
        reader.fail("num_attention_heads",
                    "is more than hidden_size, " + std::to_string(s.hidden_size) + ", and head_dim is missing");
    }
    s.heads.head_dim = reader.integer("head_dim", s.hidden_size / s.heads.heads, 1);
    s.max_positions = reader.integer("max_position_embeddings", max_positions, 1);
    if (s.heads.heads % s.heads.kv_heads != 0) {
        const std::string missing = "the default, " + std::to_string(s.heads.kv_heads) + ", ";
        reader.fail("num_key_value_heads", (reader.has("num_key_value_heads") ? "" : missing) + "does not divide the " +
                                               std::to_string(s.heads.heads) + " heads");
    }
    return s;
}

float read_epsilon(ConfigReader& reader, const std::string& field, double otherwise) {
    const auto eps = static_cast<float>(reader.number(field, otherwise));
    if (!(eps >= 0) || !std::isfinite(eps)) {
        reader.fail(field, "is out of range");
    }
    return eps;
}

float read_softcap(ConfigReader& reader, const std::string& field, double otherwise) {
    const float cap = read_epsilon(reader, field, reader.is_null(field) ? 0.0 : otherwise);
    if (cap == 0 && reader.has(field)) {  // which says "none" here, and is written null
        reader.fail(field, "is out of range");
    }
    return cap;
}

float read_scale(ConfigReader& reader, const std::string& field, double otherwise) {
    const auto scale = static_cast<float>(1.0 / std::sqrt(reader.number(field, otherwise)));
    if (!std::isfinite(scale)) {
        reader.fail(field, "is out of range");
    }
    return scale;
}

namespace {

/// Kinds have no defaults for what makes them, but for YaRN's factor.
RopeScaling read_scaling(ConfigReader& reader, std::int64_t max_positions) {
    using Kind = RopeScaling::Kind;
    RopeScaling s;
    const std::string type = reader.text(reader.has("rope_type") ? "rope_type" : "type", "default");
    reader.find("type");
    try {
        s.kind = rope_scaling_kind(type);
    } catch (const Error& error) {
        throw Error(error.what(), reader.file());
    }
    std::vector<const char*> needed;
    if (s.kind == Kind::llama3) {
        needed = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
    } else if (s.kind == Kind::linear || s.kind == Kind::ntk) {
        needed = {"factor"};
    }
    for (const char* name : needed) {
        if (!reader.has(name)) {
            reader.fail(name, "is needed by \"" + type + "\"");
        }
    }
    s.original_max_positions = reader.integer("original_max_position_embeddings", max_positions, 1);
    const double stretch = static_cast<double>(max_positions) / static_cast<double>(s.original_max_positions);
    s.factor = reader.number("factor", s.kind == Kind::yarn ? stretch : s.factor);
    s.low_freq_factor = reader.number("low_freq_factor", s.low_freq_factor);
    s.high_freq_factor = reader.number("high_freq_factor", s.high_freq_factor);
    s.beta_fast = reader.number("beta_fast", s.beta_fast);
    s.beta_slow = reader.number("beta_slow", s.beta_slow);
    s.truncate = reader.flag("truncate", s.truncate);
    s.attention_factor = reader.number("attention_factor", s.attention_factor);
    const auto must = [&](bool fits, const char* field, const char* what) {
        if (!fits) {
            reader.fail(field, what);
        }
    };
    must(s.kind == Kind::none || s.factor > 0, "factor", "must be above 0");
    must(s.kind != Kind::llama3 || s.low_freq_factor > 0, "low_freq_factor", "must be above 0");
    must(s.kind != Kind::llama3 || s.high_freq_factor > s.low_freq_factor, "high_freq_factor",
         "must be above low_freq_factor");
    must(s.kind != Kind::yarn || s.beta_fast > 0, "beta_fast", "must be above 0");
    must(s.kind != Kind::yarn || s.beta_slow > 0, "beta_slow", "must be above 0");
    // 0 says "by the factor" here
    const auto factor = static_cast<float>(s.attention_factor);
    must(!reader.has("attention_factor") || (factor > 0 && std::isfinite(factor)), "attention_factor",
         "must be above 0, and finite");
    return s;
}

/// Reads how many of a head's dimensions turn; `otherwise` where nothing is said.
std::int64_t read_rotary_dim(ConfigReader& reader, std::int64_t otherwise, const RopeDefaults& defaults) {
    constexpr const char* kField = "partial_rotary_factor";
    if (!defaults.partial) {
        reader.only(kField, 1.0);
        return otherwise;
    }
    if (!reader.has(kField)) {
        return otherwise;
    }
    const double turned = static_cast<double>(defaults.head_dim) * reader.number(kField, 1.0);
    const bool fits = turned >= 2 && turned < static_cast<double>(defaults.head_dim + 1);
    const std::int64_t rotary_dim = fits ? static_cast<std::int64_t>(turned) : 1;
    if (rotary_dim % 2 != 0) {
        reader.fail(kField,
                    "must turn an even number of the " + std::to_string(defaults.head_dim) + " dimensions of a head");
    }
    return rotary_dim;
}

}  // namespace

void check_pairs(const ConfigReader& reader, const Rope& rope) {
    if (rope.rotary_dim % 2 != 0) {
        reader.fail("head_dim",
                    "heads of " + std::to_string(rope.rotary_dim) + " dimensions have no pairs that RoPE could turn");
    }
}

Rope read_rope_object(ConfigReader& object, const Rope& from, const RopeDefaults& defaults) {
    Rope rope = from;
    rope.theta = object.number("rope_theta", from.theta);
    if (!(rope.theta > 0)) {
        object.fail("rope_theta", "is out of range");
    }
    rope.rotary_dim = read_rotary_dim(object, from.rotary_dim, defaults);
    rope.scaling = read_scaling(object, defaults.max_positions);
    object.finish();
    return rope;
}

Rope read_rope(ConfigReader& reader, const RopeDefaults& defaults) {
    Rope rope{.theta = reader.number("rope_theta", 10000.0), .layout = RopeLayout::half};
    if (!(rope.theta > 0)) {
        reader.fail("rope_theta", "is out of range");
    }
    rope.rotary_dim = read_rotary_dim(reader, defaults.head_dim, defaults);
    const json* scaling = reader.find("rope_scaling");
    const json* parameters = reader.find("rope_parameters");
    if (parameters != nullptr && scaling != nullptr && *parameters != *scaling) {
        reader.fail("rope_scaling", "differs from rope_parameters = " + parameters->dump());
    }
    const char* name = parameters != nullptr ? "rope_parameters" : "rope_scaling";
    if (parameters != nullptr || scaling != nullptr) {
        ConfigReader object(parameters != nullptr ? *parameters : *scaling, reader.file(), std::string(name) + ".");
        rope = read_rope_object(object, rope, defaults);
    }
    check_pairs(reader, rope);
    return rope;
}

void read_again(ConfigReader& reader, const std::string& name, const std::string& first, std::int64_t value) {
    const json* found = reader.find(name);
    if (found != nullptr && *found != json(value)) {
        reader.fail(name, "differs from " + first + ", which is " + std::to_string(value));
    }
}

std::int64_t read_window(ConfigReader& reader, std::int64_t otherwise) {
    const std::int64_t window = reader.integer("sliding_window", otherwise);
    return reader.is_null("sliding_window") ? 0 : window;
}

std::int64_t read_window_or_null(ConfigReader& reader, std::int64_t otherwise) {
    const std::int64_t window = read_window(reader, otherwise);
    if (reader.has("sliding_window") && window < 1) {
        reader.fail("sliding_window", "must be at least 1, or null");
    }
    return window;
}

std::vector<std::int64_t> read_windows(ConfigReader& reader, std::int64_t layers, std::int64_t window,
                                       const std::function<bool(std::int64_t)>& slides) {
    const json* types = reader.find("layer_types");
    if (types != nullptr && (!types->is_array() || types->size() != static_cast<std::size_t>(layers))) {
        reader.fail("layer_types", "must name each of the " + std::to_string(layers) + " layers");
    }
    std::vector<std::int64_t> windows;
    for (std::int64_t i = 0; i < layers; ++i) {
        bool sliding = types == nullptr && slides(i);
        if (types != nullptr) {
            const json& type = (*types)[static_cast<std::size_t>(i)];
            if (type != "full_attention" && type != "sliding_attention") {
                reader.fail("layer_types", "only full_attention and sliding_attention are known");
            }
            sliding = type == "sliding_attention";
        }
        if (sliding && window < 1) {
            reader.fail("sliding_window", "a layer slides, but the window has no size");
        }
        windows.push_back(sliding ? window : 0);
    }
    return windows;
}

std::vector<std::int64_t> read_late_windows(ConfigReader& reader, std::int64_t layers) {
    const bool use = reader.flag("use_sliding_window", false);
    const std::int64_t said = use ? read_window_or_null(reader, 4096) : read_window(reader, 4096);
    const std::int64_t window = use ? said : 0;
    const std::int64_t first = reader.integer("max_window_layers", 28);
    return read_windows(reader, layers, window, [&](std::int64_t i) { return window > 0 && i >= first; });
}

std::vector<LayerCache> layer_caches(const DecoderSizes& sizes, const std::vector<std::int64_t>& windows) {
    std::vector<LayerCache> caches;
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
        const std::int64_t window = windows.empty() ? 0 : windows[static_cast<std::size_t>(i)];
        caches.push_back({sizes.heads.kv_heads, sizes.heads.head_dim, window});
    }
    return caches;
}

}  // namespace vkf
