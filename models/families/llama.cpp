// SPDX-License-Identifier: Apache-2.0
// Llama (Touvron et al. 2023; Llama 3, 2024): RMSNorm before each half of a layer, rotary
// positions, grouped queries, SwiGLU.
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Llama final : public DecoderFamily {
public:
    explicit Llama(ConfigReader& r)
        : sizes_(read_sizes(r, 2048)),
          rope_(read_rope(r, {.head_dim = sizes_.heads.head_dim, .max_positions = sizes_.max_positions})),
          eps_(read_epsilon(r, "rms_norm_eps", 1e-6)),
          activation_(read_activation(r, "hidden_act", "silu")),
          attention_bias_(r.flag("attention_bias", false)),
          mlp_bias_(r.flag("mlp_bias", false)),
          tied_(r.flag("tie_word_embeddings", false)) {
        // of the first LLaMA's files
        read_again(r, "max_sequence_length", "max_position_embeddings", sizes_.max_positions);
        r.only("is_llama_config", true);
        r.only("rope_interleaved", false);
    }

    DecoderFacts facts() const override {
        return {.vocab_size = sizes_.vocab_size,
                .width = sizes_.hidden_size,
                .max_positions = sizes_.max_positions,
                .layers = layer_caches(sizes_),
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
        const QueryKeyValue heads = split_heads(project(x, sizes_.heads, attention_bias_), sizes_.heads);
        const Value attended = run.attend(layer, run.rotated(heads, angles));
        return output_projection(attended, "o_proj", sizes_.heads, sizes_.hidden_size, attention_bias_);
    }

    Value feed_forward(Value x) const {
        const Scope scope(x.graph(), "mlp");
        return gated_feed_forward(x, sizes_.intermediate_size, activation_, {}, mlp_bias_);
    }

    DecoderSizes sizes_;
    Rope rope_;
    float eps_;
    Activation activation_;
    bool attention_bias_, mlp_bias_;
    bool tied_;  ///< the embedding is the last matrix too
};

}  // namespace

namespace families {

Family llama() { return {.model_types = {"llama"}, .decoder = make_decoder<Llama>, .begin = 1, .end = 2}; }

}  // namespace families

}  // namespace vkf
