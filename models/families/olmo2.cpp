// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (OLMo Team 2025): norms after each half of a layer and none before, an RMSNorm of whole
// queries and keys before their heads are split, SwiGLU.
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Olmo2 final : public DecoderFamily {
public:
    explicit Olmo2(ConfigReader& r)
        : sizes_(read_sizes(r, 2048)),
          rope_(read_rope(r, {.head_dim = sizes_.heads.head_dim, .max_positions = sizes_.max_positions})),
          eps_(read_epsilon(r, "rms_norm_eps", 1e-5)),
          activation_(read_activation(r, "hidden_act", "silu")),
          bias_(r.flag("attention_bias", false)),
          tied_(r.flag("tie_word_embeddings", false)) {}

    DecoderFacts facts() const override {
        return {.vocab_size = sizes_.vocab_size,
                .width = sizes_.hidden_size,
                .max_positions = sizes_.max_positions,
                .layers = layer_caches(sizes_)};
    }

    Value embed(DecoderRun& run) const override { return token_embedding(run).embed(run.tokens()); }

    Value layer(DecoderRun& run, std::int64_t index, Value h) const override {
        const RopeTable angles = run.rope_table(rope_, sizes_.heads.head_dim);
        const Scope layer(run.graph(), "model.layers." + std::to_string(index));
        h = h + rms_norm(attention(run, index, h, angles), "post_attention_layernorm", eps_);
        return h + rms_norm(feed_forward(h), "post_feedforward_layernorm", eps_);
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
        const QueryKeyValue heads = split_heads(project_and_norm(x, sizes_.heads, bias_, eps_), sizes_.heads);
        const Value attended = run.attend(layer, run.rotated(heads, angles));
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
    bool bias_, tied_;
};

}  // namespace

namespace families {

Family olmo2() { return {.model_types = {"olmo2"}, .decoder = make_decoder<Olmo2>, .end = 50279}; }

}  // namespace families

}  // namespace vkf
