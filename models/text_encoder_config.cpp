// SPDX-License-Identifier: Apache-2.0
// config.json and the parameters of encoders of the BERT family.
#include "models/config_reader.h"
#include "models/parameters.h"
#include "models/require_memory.h"
#include "models/text_encoder.h"

namespace vkf {

namespace {

void read_bert(ConfigReader& r, TextEncoderConfig& c) {
    c.vocab_size = r.size("vocab_size");
    c.hidden_size = r.size("hidden_size");
    c.intermediate_size = r.size("intermediate_size");
    c.layers = r.size("num_hidden_layers");
    c.heads = r.size("num_attention_heads");
    c.position_rows = r.size("max_position_embeddings");
    c.token_types = r.integer("type_vocab_size", 2, 1);
    c.norm_eps = static_cast<float>(r.number("layer_norm_eps", 1e-12));
    c.activation = read_activation(r, "hidden_act", "gelu");
    r.only("position_embedding_type", "absolute");
    r.only("is_decoder", false);
    r.only("add_cross_attention", false);
}

void read_roberta(ConfigReader& r, TextEncoderConfig& c) {
    read_bert(r, c);
    c.first_position = r.integer("pad_token_id", 1) + 1;
    c.names.base = "roberta.";
}

void read_distilbert(ConfigReader& r, TextEncoderConfig& c) {
    c.vocab_size = r.size("vocab_size");
    c.hidden_size = r.size("dim");
    c.intermediate_size = r.size("hidden_dim");
    c.layers = r.size("n_layers");
    c.heads = r.size("n_heads");
    c.position_rows = r.size("max_position_embeddings");
    c.activation = read_activation(r, "activation", "gelu");
    r.find("sinusoidal_pos_embds");  // how the table was begun with; it is in the file
    TextEncoderNames& n = c.names;
    n.base = "distilbert.";
    n.token_types = "";
    n.layers = "transformer.layer";
    n.query = "attention.q_lin";
    n.key = "attention.k_lin";
    n.value = "attention.v_lin";
    n.attention_output = "attention.out_lin";
    n.attention_norm = "sa_layer_norm";
    n.up = "ffn.lin1";
    n.down = "ffn.lin2";
    n.output_norm = "output_layer_norm";
}

/// What belongs to other tasks, and tables of row numbers.
bool needless(const std::string& name) {
    for (const char* head : {"cls.", "lm_head.", "classifier.", "qa_outputs.", "vocab_", "pre_classifier."}) {
        if (name.starts_with(head)) {
            return true;
        }
    }
    return name.find("pooler.") != std::string::npos || name.ends_with("position_ids");
}

}  // namespace

TextEncoderConfig read_text_encoder_config(const Checkpoint& checkpoint) {
    const nlohmann::json root = parse_config(checkpoint.config(), checkpoint.config_file());
    ConfigReader r(root, checkpoint.config_file());
    TextEncoderConfig c;
    c.model_type = r.text("model_type", "");
    if (c.model_type == "bert") {
        read_bert(r, c);
    } else if (c.model_type == "roberta" || c.model_type == "xlm-roberta") {
        read_roberta(r, c);
    } else if (c.model_type == "distilbert") {
        read_distilbert(r, c);
    } else {
        r.fail("model_type", "is not an encoder that is known (bert, distilbert, roberta, xlm-roberta)");
    }
    for (const char* name :
         {"bos_token_id", "eos_token_id", "tie_word_embeddings", "classifier_dropout", "hidden_dropout_prob",
          "attention_probs_dropout_prob", "dropout", "qa_dropout", "seq_classif_dropout", "tie_weights_",
          "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
          "pooler_size_per_head", "pooler_type"}) {
        r.find(name);  // of training, or of heads that are left out
    }
    if (c.hidden_size % c.heads != 0 || c.max_tokens() < 1) {
        throw Error("the heads do not divide the width, or there is no row for a first position", r.file());
    }
    r.finish();
    return c;
}

Weights load_text_encoder(const Device& device, const Checkpoint& checkpoint, const TextEncoderConfig& config,
                          std::optional<WeightType> matrices) {
    Graph graph;
    describe_text_encoder(graph, config, {.max_batch = 1, .max_tokens = 1});
    ParameterRules rules{.model_type = config.model_type, .base = config.names.base, .needless = needless};
    rules.unpacked = [&](const std::string& name) {
        return name == config.names.base + config.names.positions + ".weight" ||
               name == config.names.base + config.names.token_types + ".weight";
    };
    const std::vector<Parameter> parameters = find_parameters(graph, checkpoint, rules, matrices);
    DecoderMemory memory;
    for (const Parameter& p : parameters) {
        memory.weights += p.bytes();
    }
    require_memory(device, memory, "TextEncoder");
    return load_parameters(device, parameters);
}

}  // namespace vkf
