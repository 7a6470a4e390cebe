// SPDX-License-Identifier: Apache-2.0
// What files of BERT and its kin call their parameters.
#pragma once

#include <string>

#include "layers/projections.h"

namespace vkf {

/// The names under which a checkpoint keeps the parameters.
struct BertNames {
    std::string base = "bert.";  ///< some files leave it out
    std::string layers = "encoder.layer";
    // below layers.N
    ProjectionNames projections = {"attention.self.query", "attention.self.key", "attention.self.value"};
    std::string attention_output = "attention.output.dense", attention_norm = "attention.output.LayerNorm";
    std::string up = "intermediate.dense", down = "output.dense", output_norm = "output.LayerNorm";
};

BertNames distilbert_names();

/// True for what belongs to other tasks, and for tables of row numbers.
bool is_ignored_of_bert(const std::string& name);

/// Files out of TensorFlow call the weights of a LayerNorm gamma and beta. Empty for other weights.
std::string older_name_of_bert(const std::string& name);

}  // namespace vkf
