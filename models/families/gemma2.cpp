// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team 2024): norms before and after each half of a layer, windows in every other
// layer, capped scores and logits, scaled embeddings.
#include <cmath>

#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Gemma2 final : public DecoderFamily {
public:
    explicit Gemma2(ConfigReader& r)
        : sizes_(read_sizes(r, 8192, 4)),
          rope_(read_rope(r, {.head_dim = sizes_.heads.head_dim, .max_positions = sizes_.max_positions})),
          eps_(read_epsilon(r, "rms_norm_eps", 1e-6)),
          activation_(read_activation(r, "hidden_activation", "gelu_pytorch_tanh")),
          windows_(
              read_windows(r, sizes_.layers, read_window(r, 4096), [](std::int64_t layer) { return layer % 2 == 0; })),
          scores_({.scale = read_scale(r, "query_pre_attn_scalar", 256.0),
                   .softcap = read_softcap(r, "attn_logit_softcapping", 50.0)}),
          logit_softcap_(read_softcap(r, "final_logit_softcapping", 30.0)),
          bias_(r.flag("attention_bias", false)),
          tied_(r.flag("tie_word_embeddings", true)) {
        read_again(r, "sliding_window_size", "sliding_window", read_window(r, 4096));
        r.need("head_dim");    // which the width does not give here
        r.find("hidden_act");  // which transformers does not read here
        r.only("use_bidirectional_attention", false);
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
        const RopeTable angles = run.rope_table(rope_, sizes_.heads.head_dim);
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

    Value attention(DecoderRun& run, std::int64_t layer, Value x, const RopeTable& angles) const {
        const Scope scope(run.graph(), "self_attn");
        const QueryKeyValue heads = split_heads(project(x, sizes_.heads, bias_), sizes_.heads);
        const Value attended = run.attend(layer, run.rotated(heads, angles), scores_);
        return output_projection(attended, "o_proj", sizes_.heads, sizes_.hidden_size, bias_);
    }

    Value feed_forward(Value x) const {
        const Scope scope(x.graph(), "mlp");
        return gated_feed_forward(x, sizes_.intermediate_size, activation_);
    }

    DecoderSizes sizes_;
    Rope rope_;
    float eps_;
    Activation activation_;
    std::vector<std::int64_t> windows_;
    AttentionScores scores_;
    float logit_softcap_;
    bool bias_, tied_;
};

}  // namespace

namespace families {

Family gemma2() { return {.model_types = {"gemma2"}, .decoder = make_decoder<Gemma2>, .begin = 2, .end = 1}; }

}  // namespace families

}  // namespace vkf
