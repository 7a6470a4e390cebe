// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4 (Abdin et al. 2024) without longrope, which those for long texts and Phi-4-mini
// have: Llama's layer with one matrix for queries, keys and values and one for both halves of the
// gate; RoPE may turn a part of each head, and a query may see a window of keys.
#include "layers/inner_layers.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Phi3 final : public DecoderFamily {
public:
    explicit Phi3(ConfigReader& r)
        : sizes_(read_sizes(r, 4096)),
          rope_(read_phi3_rope(r, sizes_)),
          eps_(read_epsilon(r, "rms_norm_eps", 1e-5)),
          activation_(read_activation(r, "hidden_act", "silu")),
          tied_(r.flag("tie_word_embeddings", false)),
          window_(read_window_or_null(r, 0)) {
        for (const char* bias : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
            r.only(bias, false);
        }
        r.only("full_attn_mod", 1);
        r.only("interpolate_factor", 1);
    }

    DecoderFacts facts() const override {
        const std::vector<std::int64_t> windows(static_cast<std::size_t>(sizes_.layers), window_);
        return {.vocab_size = sizes_.vocab_size,
                .width = sizes_.hidden_size,
                .max_positions = sizes_.max_positions,
                .layers = layer_caches(sizes_, windows)};
    }

    Value embed(DecoderRun& run) const override { return token_embedding(run).embed(run.tokens()); }

    Value layer(DecoderRun& run, std::int64_t index, Value h) const override {
        const RopeTable angles = run.rope_table(rope_, sizes_.heads.head_dim);
        return pre_norm_layer(
            h, index, eps_, [&](Value x) { return attention(run, index, x, angles); },
            [&](Value x) { return feed_forward(x); });
    }

    Value logits(DecoderRun& run, Value h) const override {
        return token_embedding(run).logits(rms_norm(run.logit_positions(h), "model.norm", eps_), tied_);
    }

    ParameterRules parameters() const override { return usual_parameters(tied_); }

private:
    TokenEmbedding token_embedding(const DecoderRun& run) const {
        return {run.graph(), "model.embed_tokens.weight", sizes_.vocab_size, sizes_.hidden_size};
    }

    /// What other families call yarn is longrope here, as is "su": frequencies that change where a
    /// text grows past what original_max_position_embeddings says. Keys that were turned before
    /// then would have to turn again.
    static Rope read_phi3_rope(ConfigReader& r, const DecoderSizes& sizes) {
        r.find("original_max_position_embeddings");  // only longrope needs the field
        for (const char* field : {"rope_scaling", "rope_parameters"}) {
            const nlohmann::json* rope = r.find(field);
            for (const char* type : {"type", "rope_type"}) {
                const bool said = rope != nullptr && rope->is_object() && rope->contains(type);
                if (said && rope->at(type) != "default") {
                    r.fail(field, "is not supported: of Phi-3's RoPE only the default kind is, without longrope");
                }
            }
        }
        return read_rope(r, {.head_dim = sizes.heads.head_dim, .max_positions = sizes.max_positions, .partial = true});
    }

    Value attention(DecoderRun& run, std::int64_t layer, Value x, const RopeTable& angles) const {
        const Scope scope(run.graph(), "self_attn");
        const QueryKeyValue heads = split_heads(project_fused(x, "qkv_proj", sizes_.heads), sizes_.heads);
        const Value attended = run.attend(layer, run.rotated(heads, angles));
        return output_projection(attended, "o_proj", sizes_.heads, sizes_.hidden_size);
    }

    Value feed_forward(Value x) const {
        const Scope scope(x.graph(), "mlp");
        return gated_inner_layer(x, {"gate_up_proj", "down_proj"}, sizes_.intermediate_size, sizes_.hidden_size,
                                 activation_);
    }

    DecoderSizes sizes_;
    Rope rope_;
    float eps_;
    Activation activation_;
    bool tied_;
    std::int64_t window_;  ///< 0: a query sees all
};

}  // namespace

namespace families {

Family phi3() { return {.model_types = {"phi3"}, .decoder = make_decoder<Phi3>, .begin = 1, .end = 32000}; }

}  // namespace families

}  // namespace vkf
