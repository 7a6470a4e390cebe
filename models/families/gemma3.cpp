// SPDX-License-Identifier: Apache-2.0
// Gemma 3's text model (Gemma Team 2025): of every six layers five see a window and one sees all,
// each kind with a RoPE of its own; norms before and after each half of a layer and of each head's
// query and key; scaled embeddings.
#include <cmath>

#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Gemma3 final : public DecoderFamily {
public:
    explicit Gemma3(ConfigReader& r)
        : sizes_(read_sizes(r, 131072)),
          windows_(read_gemma3_windows(r, sizes_.layers)),
          eps_(read_epsilon(r, "rms_norm_eps", 1e-6)),
          activation_(read_activation(r, "hidden_activation", "gelu_pytorch_tanh")),
          scores_({.scale = read_scale(r, "query_pre_attn_scalar", 256.0)}),
          logit_softcap_(read_softcap(r, "final_logit_softcapping", 0.0)),
          bias_(r.flag("attention_bias", false)),
          tied_(r.flag("tie_word_embeddings", true)) {
        r.need("head_dim");  // which the width does not give here
        r.need("num_key_value_heads");
        r.only("use_bidirectional_attention", false);
        read_ropes(r);
    }

    DecoderFacts facts() const override {
        return {.vocab_size = sizes_.vocab_size,
                .width = sizes_.hidden_size,
                .max_positions = sizes_.max_positions,
                .layers = layer_caches(sizes_, windows_),
                .begins_texts = true};
    }

    Value embed(DecoderRun& run) const override {
        return token_embedding(run).embed(run.tokens(),
                                          static_cast<float>(std::sqrt(static_cast<double>(sizes_.hidden_size))));
    }

    Value layer(DecoderRun& run, std::int64_t index, Value h) const override {
        const RopeTable angles = windows_[static_cast<std::size_t>(index)] > 0
                                     ? run.rope_table(local_rope_, sizes_.heads.head_dim, "rope_table.local")
                                     : run.rope_table(global_rope_, sizes_.heads.head_dim, "rope_table.global");
        return pre_and_post_norm_layer(
            h, index, eps_, [&](Value x) { return attention(run, index, x, angles); },
            [&](Value x) { return feed_forward(x); });
    }

    Value logits(DecoderRun& run, Value h) const override {
        h = rms_norm(run.logit_positions(h), "model.norm", eps_);
        return token_embedding(run).logits(h, tied_, logit_softcap_);
    }

    ParameterRules parameters() const override {
        ParameterRules rules = usual_parameters(tied_);
        rules.stored_minus_one = [](const std::string& name) { return name.ends_with("norm.weight"); };
        return rules;
    }

private:
    TokenEmbedding token_embedding(const DecoderRun& run) const {
        return {run.graph(), "model.embed_tokens.weight", sizes_.vocab_size, sizes_.hidden_size};
    }

    static std::vector<std::int64_t> read_gemma3_windows(ConfigReader& r, std::int64_t layers) {
        r.only("attn_logit_softcapping", nullptr);  // which transformers reads and does not apply
        r.find("_sliding_window_pattern");          // transformers' own note beside layer_types
        const std::int64_t pattern = r.integer("sliding_window_pattern", 6, 1);
        return read_windows(r, layers, read_window(r, 4096),
                            [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
    }

    /// rope_parameters {full_attention {...}, sliding_attention {...}} of transformers 5; or
    /// rope_theta and rope_scaling of layers that see all beside rope_local_base_freq.
    void read_ropes(ConfigReader& r) {
        const RopeDefaults defaults{.head_dim = sizes_.heads.head_dim, .max_positions = sizes_.max_positions};
        local_rope_ = {.theta = r.number("rope_local_base_freq", 10000.0),
                       .layout = RopeLayout::half,
                       .rotary_dim = sizes_.heads.head_dim};
        global_rope_ = local_rope_;
        global_rope_.theta = r.number("rope_theta", 1000000.0);
        check_pairs(r, global_rope_);
        const nlohmann::json* scaling = r.find("rope_scaling");
        const nlohmann::json* parameters = r.find("rope_parameters");
        if (parameters != nullptr && scaling != nullptr) {
            r.fail("rope_scaling", "stands beside rope_parameters = " + parameters->dump());
        }
        if (scaling != nullptr) {
            ConfigReader object(*scaling, r.file(), "rope_scaling.");
            global_rope_ = read_kind(object, global_rope_, defaults);
        }
        if (parameters == nullptr) {
            return;
        }
        ConfigReader kinds(*parameters, r.file(), "rope_parameters.");
        kinds.only("rope_type", "default");  // which transformers writes beside the kinds
        kinds.only("rope_theta", nullptr);   // where all layers are of one
        for (auto [name, rope] : {std::pair{"full_attention", &global_rope_}, {"sliding_attention", &local_rope_}}) {
            if (const nlohmann::json* said = kinds.find(name)) {
                ConfigReader object(*said, r.file(), "rope_parameters." + std::string(name) + ".");
                *rope = read_kind(object, *rope, defaults);
            }
        }
        kinds.finish();
    }

    /// transformers looks for truncate outside of the kind's object, so that it truncates always.
    static Rope read_kind(ConfigReader& object, const Rope& from, const RopeDefaults& defaults) {
        object.only("truncate", true);
        return read_rope_object(object, from, defaults);
    }

    Value attention(DecoderRun& run, std::int64_t layer, Value x, const RopeTable& angles) const {
        const Scope scope(run.graph(), "self_attn");
        const QueryKeyValue heads = split_and_norm_heads(project(x, sizes_.heads, bias_), sizes_.heads, eps_);
        const Value attended = run.attend(layer, run.rotated(heads, angles), scores_);
        return output_projection(attended, "o_proj", sizes_.heads, sizes_.hidden_size, bias_);
    }

    Value feed_forward(Value x) const {
        const Scope scope(x.graph(), "mlp");
        return gated_feed_forward(x, sizes_.intermediate_size, activation_);
    }

    DecoderSizes sizes_;
    std::vector<std::int64_t> windows_;  ///< 0: a layer that sees all
    float eps_;
    Activation activation_;
    AttentionScores scores_;
    float logit_softcap_;
    bool bias_, tied_;
    Rope local_rope_{.layout = RopeLayout::half}, global_rope_{.layout = RopeLayout::half};
};

}  // namespace

namespace families {

Family gemma3() { return {.model_types = {"gemma3_text"}, .decoder = make_decoder<Gemma3>, .begin = 2, .end = 1}; }

}  // namespace families

}  // namespace vkf
