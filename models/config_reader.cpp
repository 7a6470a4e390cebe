// SPDX-License-Identifier: Apache-2.0
#include "models/config_reader.h"

#include <algorithm>
#include <array>
#include <map>

namespace vkf {

using nlohmann::json;

namespace {

/// Fields that say nothing about the numbers of inference.
bool harmless(const std::string& name) {
    static constexpr std::array kNames{"architectures",
                                       "model_type",
                                       "_name_or_path",
                                       "name_or_path",
                                       "transformers_version",
                                       "torch_dtype",
                                       "dtype",
                                       "use_cache",
                                       "cache_implementation",
                                       "initializer_range",
                                       "pad_token_id",
                                       "attention_dropout",
                                       "hidden_dropout",
                                       "attn_pdrop",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "pretraining_tp",
                                       "gradient_checkpointing",
                                       "task_specific_params",
                                       "id2label",
                                       "label2id",
                                       "num_labels",
                                       "problem_type",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "return_dict",
                                       "is_decoder",
                                       "is_encoder_decoder",
                                       "use_return_dict",
                                       "torchscript",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       "reorder_and_upcast_attn",
                                       "n_ctx",
                                       "auto_map",
                                       "unsloth_version",
                                       "_attn_implementation_autoset",
                                       "_flash_attn_2_enabled",
                                       "chunk_size_feed_forward",
                                       "finetuning_task",
                                       "tokenizer_class",
                                       "prefix",
                                       "attn_implementation",
                                       "_attn_implementation",
                                       "use_bfloat16",
                                       "keys_to_ignore_at_inference"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

json parse_config(std::string_view text, const std::string& file) {
    try {
        return json::parse(text);
    } catch (const json::exception& error) {
        throw Error(error.what(), file);
    }
}

void ConfigReader::finish() const {
    for (const auto& [name, value] : root_.items()) {
        if (!value.is_null() && read_.count(name) == 0 && !(below_.empty() && harmless(name))) {
            fail(name, "is not known, and may change the numbers");
        }
    }
}

Activation read_activation(ConfigReader& r, const std::string& field, const std::string& otherwise) {
    static const std::map<std::string, Activation> kActivations{
        {"silu", Activation::silu}, {"swish", Activation::silu},         {"relu", Activation::relu},
        {"gelu", Activation::gelu}, {"gelu_new", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh}};
    const auto found = kActivations.find(r.text(field, otherwise));
    if (found == kActivations.end()) {
        r.fail(field, "is not an activation that is known");
    }
    return found->second;
}

}  // namespace vkf
