// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_config.h"

#include <algorithm>

#include "models/checkpoint.h"
#include "models/config_reader.h"

namespace vkf {

namespace {

using nlohmann::json;

// --- positions ---------------------------------------------------------------------------------------------------------

/// Kinds have no defaults for what makes them, but for YaRN's factor; transformers raises too.
RopeScaling read_scaling(ConfigReader& r, std::int64_t max_positions) {
    using Kind = RopeScaling::Kind;
    RopeScaling s;
    const std::string type = r.text(r.has("rope_type") ? "rope_type" : "type", "default");
    r.find("type");
    try {
        s.kind = rope_scaling_kind(type);
    } catch (const Error& error) {
        throw Error(error.what(), r.file());
    }
    std::vector<const char*> needed;
    if (s.kind == Kind::llama3) {
        needed = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
    } else if (s.kind == Kind::linear || s.kind == Kind::ntk) {
        needed = {"factor"};
    }
    for (const char* name : needed) {
        if (!r.has(name)) {
            r.fail(name, "is needed by \"" + type + "\"");
        }
    }
    s.original_max_positions = r.integer("original_max_position_embeddings", max_positions, 1);
    const double stretch = static_cast<double>(max_positions) / static_cast<double>(s.original_max_positions);
    s.factor = r.number("factor", s.kind == Kind::yarn ? stretch : s.factor);
    s.low_freq_factor = r.number("low_freq_factor", s.low_freq_factor);
    s.high_freq_factor = r.number("high_freq_factor", s.high_freq_factor);
    s.beta_fast = r.number("beta_fast", s.beta_fast);
    s.beta_slow = r.number("beta_slow", s.beta_slow);
    s.truncate = r.flag("truncate", s.truncate);
    s.attention_factor = r.number("attention_factor", s.attention_factor);
    return s;
}

/// rope_parameters {rope_type, rope_theta, ...} of transformers 5, or rope_theta beside rope_scaling {type or rope_type, ...}.
Rope read_rope(ConfigReader& r, const DecoderConfig& c) {
    Rope rope{.theta = r.number("rope_theta", 10000.0), .layout = RopeLayout::half};
    r.only("partial_rotary_factor", 1.0);
    const json* scaling = r.find("rope_scaling");
    const json* parameters = r.find("rope_parameters");
    if (parameters != nullptr && scaling != nullptr && *parameters != *scaling) {
        r.fail("rope_scaling", "differs from rope_parameters = " + parameters->dump());
    }
    const char* name = parameters != nullptr ? "rope_parameters" : "rope_scaling";
    if (parameters != nullptr || scaling != nullptr) {
        ConfigReader part(parameters != nullptr ? *parameters : *scaling, r.file(), std::string(name) + ".");
        rope.theta = part.number("rope_theta", rope.theta);
        part.only("partial_rotary_factor", 1.0);
        rope.scaling = read_scaling(part, c.max_positions);
        part.finish();
    }
    if (!(rope.theta > 0)) {
        r.fail(name, "rope_theta is out of range");
    }
    rope.rotary_dim = c.head_dim;
    return rope;
}

/// layer_types, or what `otherwise(layer)` says of each layer, of the window that `sliding_window` gives.
template <class Slides>
void read_windows(ConfigReader& r, DecoderConfig& c, std::int64_t window, Slides otherwise) {
    const json* types = r.find("layer_types");
    if (types != nullptr && (!types->is_array() || types->size() != static_cast<std::size_t>(c.layers))) {
        r.fail("layer_types", "must name each of the " + std::to_string(c.layers) + " layers");
    }
    for (std::int64_t i = 0; i < c.layers; ++i) {
        bool slides = otherwise(i);
        if (types != nullptr) {
            const json& type = (*types)[static_cast<std::size_t>(i)];
            if (type != "full_attention" && type != "sliding_attention") {
                r.fail("layer_types", "only full_attention and sliding_attention are known");
            }
            slides = type == "sliding_attention";
        }
        if (slides && window < 1) {
            r.fail("sliding_window", "a layer slides, but the window has no size");
        }
        c.windows.push_back(slides ? window : 0);
    }
}

// --- architectures -------------------------------------------------------------------------------------------------------

/// What Llama and all that came after it call their sizes.
void read_sizes(ConfigReader& r, DecoderConfig& c, std::int64_t max_positions) {
    c.vocab_size = r.size("vocab_size");
    c.hidden_size = r.size("hidden_size");
    c.intermediate_size = r.size("intermediate_size");
    c.layers = r.size("num_hidden_layers");
    c.heads = r.size("num_attention_heads");
    c.kv_heads = r.integer("num_key_value_heads", c.heads, 1);
    c.head_dim = r.integer("head_dim", c.hidden_size / c.heads, 1);
    c.max_positions = r.integer("max_position_embeddings", max_positions, 1);
    c.norm_eps = static_cast<float>(r.number("rms_norm_eps", 1e-6));
    c.rope = read_rope(r, c);
}

void read_llama(ConfigReader& r, DecoderConfig& c) {
    read_sizes(r, c, 2048);
    c.activation = read_activation(r, "hidden_act", "silu");
    c.qkv_bias = c.output_bias = r.flag("attention_bias", false);
    c.feed_forward_bias = r.flag("mlp_bias", false);
    r.only("is_llama_config", true);
    r.only("rope_interleaved", false);
    c.windows.assign(static_cast<std::size_t>(c.layers), 0);
}

void read_mistral(ConfigReader& r, DecoderConfig& c) {
    read_sizes(r, c, 131072);
    c.activation = read_activation(r, "hidden_act", "silu");
    const std::int64_t window = r.is_null("sliding_window") ? 0 : r.integer("sliding_window", 4096);
    read_windows(r, c, window, [&](std::int64_t) { return window > 0; });
}

void read_qwen(ConfigReader& r, DecoderConfig& c) {
    read_sizes(r, c, 32768);
    c.activation = read_activation(r, "hidden_act", "silu");
    const bool use = r.flag("use_sliding_window", false);
    const std::int64_t window = !use || r.is_null("sliding_window") ? 0 : r.integer("sliding_window", 4096);
    r.find("sliding_window");
    const std::int64_t full = r.integer("max_window_layers", 28);
    read_windows(r, c, window, [&](std::int64_t i) { return window > 0 && i >= full; });
    r.only("use_mrope", false);
}

void read_qwen2(ConfigReader& r, DecoderConfig& c) {
    read_qwen(r, c);
    c.qkv_bias = true;
}

void read_qwen3(ConfigReader& r, DecoderConfig& c) {
    if (!r.has("head_dim")) {
        r.fail("head_dim", "is needed");
    }
    read_qwen(r, c);
    c.qkv_bias = c.output_bias = r.flag("attention_bias", false);
    c.qk_norm = true;
}

void read_gemma2(ConfigReader& r, DecoderConfig& c) {
    if (!r.has("head_dim")) {
        r.fail("head_dim", "is needed");
    }
    read_sizes(r, c, 8192);
    c.activation =
        read_activation(r, r.has("hidden_activation") ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh");
    r.find("hidden_act");  // which hidden_activation overrides
    c.norm = NormKind::rms_one_plus;
    c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
    c.qkv_bias = c.output_bias = r.flag("attention_bias", false);
    c.attention_scale = static_cast<float>(1.0 / std::sqrt(r.number("query_pre_attn_scalar", 256.0)));
    const auto softcap = [&](const char* name, double missing) {
        return static_cast<float>(r.number(name, r.is_null(name) ? 0.0 : missing));
    };
    c.attention_softcap = softcap("attn_logit_softcapping", 50.0);
    c.logit_softcap = softcap("final_logit_softcapping", 30.0);
    r.only("use_bidirectional_attention", false);
    read_windows(r, c, r.integer("sliding_window", 4096), [](std::int64_t i) { return i % 2 == 0; });
    c.names.attention_output_norm = "post_attention_layernorm";
    c.names.feed_forward_norm = "pre_feedforward_layernorm";
    c.names.feed_forward_output_norm = "post_feedforward_layernorm";
}

void read_gpt2(ConfigReader& r, DecoderConfig& c) {
    c.vocab_size = r.size("vocab_size");
    c.hidden_size = r.size("n_embd");
    c.layers = r.size("n_layer");
    c.heads = c.kv_heads = r.size("n_head");
    c.head_dim = c.hidden_size / c.heads;
    c.intermediate_size = r.integer("n_inner", 4 * c.hidden_size, 1);
    c.max_positions = r.size("n_positions");
    c.norm = NormKind::layer;
    c.norm_eps = static_cast<float>(r.number("layer_norm_epsilon", 1e-5));
    c.activation = read_activation(r, "activation_function", "gelu_new");
    c.gated = false;
    c.qkv_bias = c.output_bias = c.feed_forward_bias = true;
    c.transposed_weights = true;
    c.windows.assign(static_cast<std::size_t>(c.layers), 0);
    r.only("scale_attn_by_inverse_layer_idx", false);
    r.only("add_cross_attention", false);
    c.attention_scale = r.flag("scale_attn_weights", true) ? 0.0f : 1.0f;
    c.names = {.base = "transformer.",
               .embedding = "wte",
               .positions = "wpe",
               .layers = "h",
               .norm = "ln_f",
               .attention_norm = "ln_1",
               .attention = "attn",
               .feed_forward_norm = "ln_2",
               .feed_forward = "mlp",
               .attention_output_norm = "",
               .feed_forward_output_norm = "",
               .fused_qkv = "c_attn",
               .output = "c_proj",
               .gate = "",
               .up = "c_fc",
               .down = "c_proj"};
}

struct Architecture {
    const char* model_type;
    void (*read)(ConfigReader&, DecoderConfig&);
    bool tied;  ///< where the file does not say
};

constexpr Architecture kArchitectures[] = {
    {"gemma2", read_gemma2, true},    {"gpt2", read_gpt2, true},    {"llama", read_llama, false},
    {"mistral", read_mistral, false}, {"qwen2", read_qwen2, false}, {"qwen3", read_qwen3, false},
};

const Architecture& architecture(ConfigReader& r, const std::string& model_type) {
    std::string known;
    for (const Architecture& a : kArchitectures) {
        if (model_type == a.model_type) {
            return a;
        }
        known += (known.empty() ? "" : ", ") + std::string(a.model_type);
    }
    r.fail("model_type", "is not an architecture that is known (" + known + ")");
}

/// A number or a list of them.
std::vector<std::int32_t> read_ids(ConfigReader& r, const char* name) {
    const json* value = r.find(name);
    std::vector<std::int32_t> ids;
    for (const json& id : value == nullptr ? json::array() : value->is_array() ? *value : json::array({*value})) {
        if (!id.is_number_integer()) {
            r.fail(name, "must be a token's id, or a list of them");
        }
        ids.push_back(id.get<std::int32_t>());
    }
    return ids;
}

void check(ConfigReader& r, const DecoderConfig& c) {
    if (c.heads % c.kv_heads != 0) {
        r.fail("num_key_value_heads", "does not divide the " + std::to_string(c.heads) + " heads");
    }
    if (!(c.norm_eps >= 0) || !(c.attention_softcap >= 0) || !(c.logit_softcap >= 0) ||
        !std::isfinite(c.attention_scale)) {
        throw Error("an epsilon, softcap or scale is out of range", r.file());
    }
}

}  // namespace

DecoderConfig read_decoder_config(std::string_view text, const std::string& file) {
    const json root = parse_config(text, file);
    ConfigReader r(root, file);
    DecoderConfig c;
    c.model_type = r.text("model_type", "");
    const Architecture& a = architecture(r, c.model_type);
    a.read(r, c);
    c.tied_embeddings = r.flag("tie_word_embeddings", a.tied);
    const std::vector<std::int32_t> begin = read_ids(r, "bos_token_id");
    c.begin = begin.empty() ? std::nullopt : std::optional(begin.front());
    c.end = read_ids(r, "eos_token_id");
    check(r, c);
    r.finish();
    return c;
}

DecoderConfig read_decoder_config(const Checkpoint& checkpoint) {
    DecoderConfig c = read_decoder_config(checkpoint.config(), checkpoint.config_file());
    const std::filesystem::path path = checkpoint.folder() / "generation_config.json";
    if (std::filesystem::exists(path)) {
        const json root = parse_config(read_text(path), utf8_name(path));
        ConfigReader r(root, utf8_name(path));
        const std::vector<std::int32_t> end = read_ids(r, "eos_token_id");
        c.end = end.empty() ? c.end : end;
    }
    return c;
}

}  // namespace vkf
