// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al. 2023): Llama's layer, in which a query sees a window of keys.
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Mistral final : public DecoderFamily {
public:
    explicit Mistral(ConfigReader& r)
        : sizes_(read_sizes(r, 131072, 8)),
          rope_(read_rope(r, {.head_dim = sizes_.heads.head_dim, .max_positions = sizes_.max_positions})),
          eps_(read_epsilon(r, "rms_norm_eps", 1e-6)),
          activation_(read_activation(r, "hidden_act", "silu")),
          tied_(r.flag("tie_word_embeddings", false)) {
        r.only("attention_bias", false);
        const std::int64_t window = read_window_or_null(r, 4096);
        windows_ = read_windows(r, sizes_.layers, window, [&](std::int64_t) { return window > 0; });
    }

    DecoderFacts facts() const override {
        return {.vocab_size = sizes_.vocab_size,
                .width = sizes_.hidden_size,
                .max_positions = sizes_.max_positions,
                .layers = layer_caches(sizes_, windows_),
                .begins_texts = true};
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

    Value attention(DecoderRun& run, std::int64_t layer, Value x, const RopeTable& angles) const {
        const Scope scope(run.graph(), "self_attn");
        const QueryKeyValue heads = split_heads(project(x, sizes_.heads), sizes_.heads);
        // attention sees the layer's window
        const Value attended = run.attend(layer, run.rotated(heads, angles));
        return output_projection(attended, "o_proj", sizes_.heads, sizes_.hidden_size);
    }

    Value feed_forward(Value x) const {
        const Scope scope(x.graph(), "mlp");
        return gated_feed_forward(x, sizes_.intermediate_size, activation_);
    }

    DecoderSizes sizes_;
    Rope rope_;
    float eps_;
    Activation activation_;
    bool tied_;
    std::vector<std::int64_t> windows_;
};

}  // namespace

namespace families {

Family mistral() { return {.model_types = {"mistral"}, .decoder = make_decoder<Mistral>, .begin = 1, .end = 2}; }

}  // namespace families

}  // namespace vkf
