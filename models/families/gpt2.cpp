// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each half of a layer, one matrix
// for queries, keys and values, biases everywhere.
#include "layers/inner_layers.h"
#include "layers/norm.h"
#include "models/blocks/decoder_stack.h"
#include "models/blocks/read_config.h"
#include "models/blocks/token_embedding.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Gpt2 final : public DecoderFamily {
public:
    explicit Gpt2(ConfigReader& r)
        : vocab_size_(r.size("vocab_size")),
          width_(r.size("n_embd")),
          layers_(r.layers("n_layer")),
          heads_(r.size("n_head")),
          inner_(read_inner(r, width_)),
          positions_(r.size("n_positions")),
          eps_(read_epsilon(r, "layer_norm_epsilon", 1e-5)),
          activation_(read_activation(r, "activation_function", "gelu_new")),
          scores_({.scale = r.flag("scale_attn_weights", true) ? std::optional<float>() : 1.0f}),
          tied_(r.flag("tie_word_embeddings", true)) {
        if (width_ % heads_ != 0) {
            r.fail("n_head", "does not divide n_embd, " + std::to_string(width_));
        }
        r.only("scale_attn_by_inverse_layer_idx", false);
        r.only("add_cross_attention", false);
    }

    DecoderFacts facts() const override {
        return {.vocab_size = vocab_size_,
                .width = width_,
                .max_positions = positions_,
                .layers = std::vector<LayerCache>(static_cast<std::size_t>(layers_), {heads_, width_ / heads_})};
    }

    Value embed(DecoderRun& run) const override {
        const Value h = token_embedding(run).embed(run.tokens());
        return h + run.learned_positions(run.graph().weight("transformer.wpe.weight", {positions_, width_}));
    }

    Value layer(DecoderRun& run, std::int64_t index, Value h) const override {
        const Scope layer(run.graph(), "transformer.h." + std::to_string(index));
        h = h + attention(run, index, layer_norm(h, "ln_1", eps_));
        return h + feed_forward(layer_norm(h, "ln_2", eps_));
    }

    Value logits(DecoderRun& run, Value h) const override {
        return token_embedding(run).logits(layer_norm(run.logit_positions(h), "transformer.ln_f", eps_), tied_);
    }

    ParameterRules parameters() const override {
        ParameterRules rules{.optional_prefix = "transformer."};
        rules.ignored = [](const std::string& name) {  // causal masks
            return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
        };
        rules.copies = copies_of_table(tied_, "transformer.wte.weight");
        rules.stored_transposed = [](const std::string& name) { return name.starts_with("transformer.h."); };
        rules.looked_up = [](const std::string& name) { return name == "transformer.wpe.weight"; };
        return rules;
    }

private:
    /// Four times the width, where nothing is said.
    static std::int64_t read_inner(ConfigReader& r, std::int64_t width) {
        constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
        if (!r.has("n_inner") && width > kMost / 4) {
            r.fail("n_embd", "is more than " + std::to_string(kMost / 4));
        }
        return r.integer("n_inner", 4 * width, 1);
    }

    TokenEmbedding token_embedding(const DecoderRun& run) const {
        return {run.graph(), "transformer.wte.weight", vocab_size_, width_};
    }

    Value attention(DecoderRun& run, std::int64_t layer, Value x) const {
        const Scope scope(run.graph(), "attn");
        const HeadSizes sizes{heads_, heads_, width_ / heads_};
        const QueryKeyValue heads = split_heads(project_fused(x, "c_attn", sizes, true), sizes);
        return output_projection(run.attend(layer, heads, scores_), "c_proj", sizes, width_, true);
    }

    Value feed_forward(Value x) const {
        const Scope scope(x.graph(), "mlp");
        return inner_layer(x, {"c_fc", "c_proj"}, inner_, width_, true, activation_);
    }

    std::int64_t vocab_size_, width_, layers_, heads_, inner_, positions_;
    float eps_;
    Activation activation_;
    AttentionScores scores_;
    bool tied_;
};

}  // namespace

namespace families {

Family gpt2() { return {.model_types = {"gpt2"}, .decoder = make_decoder<Gpt2>, .begin = 50256, .end = 50256}; }

}  // namespace families

}  // namespace vkf
