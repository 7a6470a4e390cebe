// SPDX-License-Identifier: Apache-2.0
// BERT (Devlin et al. 2019) and what kept its layer: RoBERTa, XLM-RoBERTa, DistilBERT. Learned
// positions, a LayerNorm after each half of a layer, biases everywhere, attention in both
// directions.
#include "layers/linear.h"
#include "layers/norm.h"
#include "models/blocks/bert_names.h"
#include "models/blocks/read_config.h"
#include "models/families/family.h"

namespace vkf {

namespace {

class Bert final : public EncoderFamily {
public:
    explicit Bert(ConfigReader& r) {
        const std::string type = r.text("model_type", "");
        vocab_size_ = r.size("vocab_size");
        if (type == "distilbert") {
            read_distilbert(r);
        } else {
            read_bert(r);
        }
        if (type == "roberta" || type == "xlm-roberta") {
            padding_ = static_cast<std::int32_t>(r.integer("pad_token_id", 1));
            first_position_ = std::int64_t{*padding_} + 1;
            names_.base = "roberta.";
        }
        if (width_ % heads_ != 0 || position_rows_ <= first_position_) {
            throw Error("the heads do not divide the width, or there is no row for a first position", r.file());
        }
        for (const char* name :
             {"bos_token_id", "eos_token_id", "tie_word_embeddings", "classifier_dropout", "hidden_dropout_prob",
              "attention_probs_dropout_prob", "dropout", "qa_dropout", "seq_classif_dropout", "tie_weights_",
              "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
              "pooler_size_per_head", "pooler_type"}) {
            r.find(name);  // the field is of training, or of heads that are left out
        }
    }

    EncoderFacts facts() const override {
        return {.vocab_size = vocab_size_, .hidden_size = width_, .max_tokens = position_rows_ - first_position_};
    }

    /// RoBERTa's positions do not count its padding id, wherever it stands; they are counted here.
    std::optional<std::int32_t> refused() const override { return padding_; }

    Value describe(Value ids, Value keys) const override {
        Graph& g = ids.graph();
        const auto table = [&](const char* name, std::int64_t rows) {
            return g.weight(names_.base + "embeddings." + name + ".weight", {rows, width_});
        };
        Value h = embedding(ids, table("word_embeddings", vocab_size_));
        h = h + slice(table("position_embeddings", position_rows_), 0, first_position_, ids.size(1));
        if (token_types_ > 0) {
            h = h + slice(table("token_type_embeddings", token_types_), 0, 0, 1);
        }
        h = layer_norm(h, names_.base + "embeddings.LayerNorm", eps_);
        for (std::int64_t i = 0; i < layers_; ++i) {
            const Scope layer(g, names_.base + names_.layers + "." + std::to_string(i));
            h = layer_norm(h + attention(h, keys), names_.attention_norm, eps_);
            h = layer_norm(h + feed_forward(h), names_.output_norm, eps_);
        }
        return h;
    }

    ParameterRules parameters() const override {
        const auto looked_up = [base = names_.base + "embeddings."](const std::string& name) {
            return name == base + "position_embeddings.weight" || name == base + "token_type_embeddings.weight";
        };
        return {.optional_prefix = names_.base,
                .ignored = is_ignored_of_bert,
                .looked_up = looked_up,
                .older_name = older_name_of_bert};
    }

private:
    void read_bert(ConfigReader& r) {
        width_ = r.size("hidden_size");
        inner_ = r.size("intermediate_size");
        layers_ = r.layers("num_hidden_layers");
        heads_ = r.size("num_attention_heads");
        position_rows_ = r.size("max_position_embeddings");
        token_types_ = r.integer("type_vocab_size", 2, 1);
        eps_ = read_epsilon(r, "layer_norm_eps", 1e-12);
        activation_ = read_activation(r, "hidden_act", "gelu");
        r.only("position_embedding_type", "absolute");
        r.only("is_decoder", false);
        r.only("add_cross_attention", false);
    }

    void read_distilbert(ConfigReader& r) {
        width_ = r.size("dim");
        inner_ = r.size("hidden_dim");
        layers_ = r.layers("n_layers");
        heads_ = r.size("n_heads");
        position_rows_ = r.size("max_position_embeddings");
        activation_ = read_activation(r, "activation", "gelu");
        r.find("sinusoidal_pos_embds");  // how the table began before training; it is in the file
        names_ = distilbert_names();
    }

    Value attention(Value x, Value keys) const {
        const HeadSizes sizes{heads_, heads_, width_ / heads_};
        const QueryKeyValue heads = split_heads(project(x, sizes, true, names_.projections), sizes);
        AttentionOptions options;
        options.mask.keys = keys;
        const Value attended = scaled_dot_product_attention(heads.query, heads.key, heads.value, options);
        return linear_layer(merge_heads(attended), names_.attention_output, width_, true);
    }

    Value feed_forward(Value x) const {
        return linear_layer(linear_layer(x, names_.up, inner_, true, activation_), names_.down, width_, true);
    }

    std::int64_t vocab_size_ = 0, width_ = 0, inner_ = 0, layers_ = 0, heads_ = 0;
    std::int64_t position_rows_ = 0;
    /// row of the first token: RoBERTa's come after its padding id
    std::int64_t first_position_ = 0;
    std::optional<std::int32_t> padding_;  ///< of RoBERTa
    std::int64_t token_types_ = 0;         ///< 0: there is no table of them
    float eps_ = 1e-12f;
    Activation activation_ = Activation::gelu;
    BertNames names_;
};

}  // namespace

namespace families {

Family bert() {
    return {.model_types = {"bert", "distilbert", "roberta", "xlm-roberta"}, .encoder = make_encoder<Bert>};
}

}  // namespace families

}  // namespace vkf
