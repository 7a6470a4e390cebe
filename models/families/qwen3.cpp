// SPDX-License-Identifier: Apache-2.0
// Qwen 3 (Yang et al. 2025): Llama's layer with an RMSNorm of each head's query and key, and
// windows from a layer on.
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Qwen3 final : public DecoderFamily {
public:
    explicit Qwen3(ConfigReader& r)
        : sizes_(read_sizes(r, 32768, 32)),
          rope_(read_rope(r, {.head_dim = sizes_.heads.head_dim, .max_positions = sizes_.max_positions})),
          eps_(read_epsilon(r, "rms_norm_eps", 1e-6)),
          activation_(read_activation(r, "hidden_act", "silu")),
          windows_(read_late_windows(r, sizes_.layers)),
          bias_(r.flag("attention_bias", false)),
          tied_(r.flag("tie_word_embeddings", false)) {
        r.need("head_dim");  // which the width does not give here
        r.only("use_mrope", false);
    }

    DecoderFacts facts() const override {
        return {.vocab_size = sizes_.vocab_size,
                .width = sizes_.hidden_size,
                .max_positions = sizes_.max_positions,
                .layers = layer_caches(sizes_, windows_)};
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
        const QueryKeyValue heads = split_and_norm_heads(project(x, sizes_.heads, bias_), sizes_.heads, eps_);
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
    std::vector<std::int64_t> windows_;
    bool bias_, tied_;
};

}  // namespace

namespace families {

Family qwen3() { return {.model_types = {"qwen3"}, .decoder = make_decoder<Qwen3>}; }

}  // namespace families

}  // namespace vkf
