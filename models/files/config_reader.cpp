// SPDX-License-Identifier: Apache-2.0
#include "models/files/config_reader.h"

#include <algorithm>
#include <array>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/json_size.h"
#include "runtime/base/named_errors.h"

namespace vkf {

using nlohmann::json;

namespace {

/// The fields by which transformers draws and searches where generation_config.json does not say;
/// whoever calls a decoder says it here.
constexpr std::array kGeneration{"max_length",
                                 "min_length",
                                 "max_new_tokens",
                                 "do_sample",
                                 "early_stopping",
                                 "num_beams",
                                 "num_beam_groups",
                                 "diversity_penalty",
                                 "temperature",
                                 "top_k",
                                 "top_p",
                                 "typical_p",
                                 "repetition_penalty",
                                 "length_penalty",
                                 "no_repeat_ngram_size",
                                 "encoder_no_repeat_ngram_size",
                                 "bad_words_ids",
                                 "num_return_sequences",
                                 "output_scores",
                                 "return_dict_in_generate",
                                 "forced_bos_token_id",
                                 "forced_eos_token_id",
                                 "remove_invalid_values",
                                 "exponential_decay_length_penalty",
                                 "suppress_tokens",
                                 "begin_suppress_tokens"};

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
                                       "keys_to_ignore_at_inference",
                                       "transformers.js_config",
                                       "_num_labels",
                                       "n_special",
                                       "predict_special_tokens",
                                       "output_past",
                                       "unsloth_fixed",
                                       "decoder_start_token_id",
                                       "sep_token_id"};
    const auto among = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
    return among(kNames) || among(kGeneration);
}

}  // namespace

OwnedJson parse_config(std::string_view text, const std::string& file) {
    return naming(file, [&] {
        require_parsed_bytes(parsed_bytes(text, kDeepestConfig));
        return parse_owned(text);
    });
}

std::string ConfigReader::text_of(const std::string& name) const {
    constexpr std::size_t kMostBytes = 300;
    if (!root_.contains(name)) {
        return "(missing)";
    }
    // in ASCII, so that no character is cut in two
    const std::string text = root_.at(name).dump(-1, ' ', true);
    return text.size() > kMostBytes ? text.substr(0, kMostBytes) + "..." : text;
}

void ConfigReader::finish() const {
    for (const auto& [name, value] : root_.items()) {
        const bool nothing = value.is_null() || (name == "pruned_heads" && value.empty());
        if (!nothing && read_.count(name) == 0 && !(below_.empty() && harmless(name))) {
            fail(name, "is not known, and may change the numbers");
        }
    }
}

Activation read_activation(ConfigReader& reader, const std::string& field, const std::string& otherwise) {
    static const std::map<std::string, Activation> kActivations{
        {"silu", Activation::silu},           {"swish", Activation::silu},
        {"relu", Activation::relu},           {"gelu", Activation::gelu},
        {"gelu_python", Activation::gelu},    {"gelu_new", Activation::gelu_tanh},
        {"gelu_fast", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh}};
    const auto found = kActivations.find(reader.text(field, otherwise));
    if (found == kActivations.end()) {
        reader.fail(field, "is not an activation that is known");
    }
    return found->second;
}

}  // namespace vkf
