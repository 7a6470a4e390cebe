// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/bert_names.h"

namespace vkf {

BertNames distilbert_names() {
    return {.base = "distilbert.",
            .layers = "transformer.layer",
            .projections = {"attention.q_lin", "attention.k_lin", "attention.v_lin"},
            .attention_output = "attention.out_lin",
            .attention_norm = "sa_layer_norm",
            .up = "ffn.lin1",
            .down = "ffn.lin2",
            .output_norm = "output_layer_norm"};
}

bool is_ignored_of_bert(const std::string& name) {
    for (const char* head : {"cls.", "lm_head.", "classifier.", "qa_outputs.", "vocab_", "pre_classifier."}) {
        if (name.starts_with(head)) {
            return true;
        }
    }
    return name.find("pooler.") != std::string::npos || name.ends_with("position_ids");
}

std::string older_name_of_bert(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    const bool norm = dot != std::string::npos && name.substr(0, dot).ends_with("LayerNorm");
    return norm ? name.substr(0, dot) + (name.ends_with(".bias") ? ".beta" : ".gamma") : std::string();
}

}  // namespace vkf
