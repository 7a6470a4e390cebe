// SPDX-License-Identifier: Apache-2.0
// config.json of decoders: what is read over, what stands for what is missing, and what is refused.
#include "models/decoder_config.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/checkpoint.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

const std::filesystem::path kModels = VKFORMER_SOURCE_DIR "/tests/decoders";

nlohmann::json config_of(const char* name) { return nlohmann::json::parse(read_text(kModels / name / "config.json")); }

std::string refusal(const nlohmann::json& config) {
    return error_of([&] { read_decoder_config(config.dump(), "config.json"); });
}

std::string with(nlohmann::json config, const char* field, const nlohmann::json& value) {
    config[field] = value;
    return refusal(config);
}

}  // namespace

TEST_SUITE_BEGIN("decoder");

TEST_CASE("decoder: a config.json that would give other numbers is refused by name") {
    const nlohmann::json good = config_of("llama");
    CHECK(refusal(good) == "");
    CHECK(contains(with(good, "model_type", "mamba"), "model_type = \"mamba\": is not an architecture that is known"));
    CHECK(contains(with(good, "quantization_config", {{"bits", 4}}), "quantization_config"));
    CHECK(contains(with(good, "residual_multiplier", 0.2), "residual_multiplier = 0.2: is not known"));
    CHECK(with(good, "residual_multiplier", nullptr) == "");
    CHECK(contains(with(good, "hidden_act", "mish"), "hidden_act"));
    CHECK(contains(with(good, "num_attention_heads", 0), "num_attention_heads = 0"));
    CHECK(contains(with(good, "num_key_value_heads", 3), "does not divide the 4 heads"));
    CHECK(contains(with(good, "hidden_size", "big"), "hidden_size"));
    nlohmann::json older = config_of("llama_linear");
    CHECK(contains(with(older, "rope_scaling", {{"type", "dynamic"}, {"factor", 2}}), "dynamic"));
    CHECK(contains(with(older, "rope_scaling", {{"type", "linear"}, {"factor", 2}, {"mscale", 1}}),
                   "rope_scaling.mscale"));
    CHECK(contains(with(config_of("mistral"), "layer_types", {"full_attention"}), "layer_types"));
    CHECK(contains(with(config_of("gpt2"), "scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse"));
    CHECK(contains(refusal(nlohmann::json::array()), "is not an object"));
    CHECK(error_of([] { read_decoder_config("{", "config.json"); }).starts_with("config.json: "));
}

TEST_CASE("decoder: rope_scaling beside a rope_parameters that says otherwise is refused, naming both") {
    const nlohmann::json good = config_of("llama");
    for (const char* type : {"linear", "dynamic", "longrope", "default"}) {
        const std::string said = with(good, "rope_scaling", {{"type", type}, {"factor", 2}});
        CAPTURE(said);
        CHECK(contains(said, "rope_scaling = {"));
        CHECK(contains(said, "differs from rope_parameters = {"));
    }
    CHECK(with(good, "rope_scaling", nullptr) == "");
    CHECK(with(good, "rope_scaling", good["rope_parameters"]) == "");
}

TEST_CASE("decoder: fields of published checkpoints that change no numbers are read over") {
    const nlohmann::json sampling{{"max_length", 4096}, {"temperature", 0.9}, {"top_k", 50},
                                  {"top_p", 0.6},       {"do_sample", true},  {"repetition_penalty", 1.0}};
    const nlohmann::json gpt2{
        {"_num_labels", 1}, {"n_special", 0}, {"predict_special_tokens", true}, {"output_past", true}};
    const nlohmann::json smol{
        {"is_llama_config", true}, {"rope_interleaved", false}, {"transformers.js_config", {{"dtype", "q4"}}}};
    const nlohmann::json any{{"unsloth_fixed", true}, {"pruned_heads", nlohmann::json::object()}};
    const auto merged = [](const char* name, const nlohmann::json& fields) {
        nlohmann::json config = config_of(name);
        config.update(fields);
        return refusal(config);
    };
    CHECK(merged("llama", sampling) == "");
    CHECK(merged("llama", smol) == "");
    CHECK(merged("gpt2", gpt2) == "");
    CHECK(merged("qwen2", {{"use_mrope", false}}) == "");
    CHECK(merged("qwen3", any) == "");
    // and the same where they would
    CHECK(contains(merged("qwen2", {{"use_mrope", true}}), "use_mrope = true"));
    CHECK(contains(merged("llama", {{"is_llama_config", false}}), "is_llama_config = false"));
    CHECK(contains(merged("llama", {{"rope_interleaved", true}}), "rope_interleaved = true"));
    CHECK(contains(merged("gpt2", {{"pruned_heads", {{"0", {1}}}}}), "pruned_heads"));
}

TEST_CASE("decoder: fields that are missing are what transformers takes them for, and null is none") {
    using Fields = std::vector<const char*>;
    const auto without = [](nlohmann::json config, const Fields& fields) {
        for (const char* field : fields) {
            config.erase(field);
        }
        return config;
    };
    const auto null = [](nlohmann::json config, const Fields& fields) {
        for (const char* field : fields) {
            config[field] = nullptr;
        }
        return config;
    };
    const auto read = [](const nlohmann::json& config) { return read_decoder_config(config.dump(), "config.json"); };
    const nlohmann::json gemma = config_of("gemma2"), mistral = config_of("mistral"), qwen = config_of("qwen2_window");
    const Fields caps{"attn_logit_softcapping", "final_logit_softcapping"};
    CHECK(read(gemma).attention_softcap == 5.0f);
    CHECK(read(without(gemma, caps)).attention_softcap == 50.0f);
    CHECK(read(without(gemma, caps)).logit_softcap == 30.0f);
    CHECK(read(null(gemma, caps)).attention_softcap == 0.0f);
    CHECK(read(null(gemma, caps)).logit_softcap == 0.0f);
    using Windows = std::vector<std::int64_t>;
    CHECK(read(mistral).windows == Windows{7, 7});
    CHECK(read(without(mistral, {"sliding_window"})).windows == Windows{4096, 4096});
    CHECK(read(null(mistral, {"sliding_window"})).windows == Windows{0, 0});
    CHECK(read(without(qwen, {"sliding_window", "layer_types"})).windows == Windows{0, 4096});
    CHECK(read(null(qwen, {"sliding_window", "layer_types"})).windows == Windows{0, 0});
}

TEST_CASE("decoder: a RoPE that is not whole, or turns a part, is refused by name") {
    const auto rope = [](const nlohmann::json& more, const char* less) {
        nlohmann::json config = config_of("llama3");
        config["rope_parameters"].update(more);
        config["rope_parameters"].erase(less);
        return config;
    };
    for (const char* name : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
        CHECK(contains(refusal(rope(nlohmann::json::object(), name)),
                       "rope_parameters." + std::string(name) + " = (missing): is needed by \"llama3\""));
    }
    CHECK(contains(with(config_of("llama_linear"), "rope_scaling", {{"type", "linear"}}), "rope_scaling.factor"));
    const nlohmann::json yarn{{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"original_max_position_embeddings", 32}};
    nlohmann::json config = config_of("llama");  // trained for 128
    config["rope_parameters"] = yarn;
    CHECK(read_decoder_config(config.dump(), "config.json").rope->scaling.factor == 4.0);
    config["rope_parameters"]["factor"] = nullptr;
    CHECK(read_decoder_config(config.dump(), "config.json").rope->scaling.factor == 4.0);
    for (const char* name : {"llama", "mistral", "qwen2", "qwen3", "gemma2"}) {
        CAPTURE(name);
        CHECK(contains(with(config_of(name), "partial_rotary_factor", 0.5), "partial_rotary_factor = 0.5"));
        CHECK(with(config_of(name), "partial_rotary_factor", 1) == "");
    }
    CHECK(contains(refusal(rope({{"partial_rotary_factor", 0.5}}, "")), "rope_parameters.partial_rotary_factor"));
}

TEST_CASE("decoder: activations go by every name that transformers has for them") {
    const auto read = [](const char* name) {
        nlohmann::json config = config_of("gpt2");
        config["activation_function"] = name;
        return read_decoder_config(config.dump(), "config.json").activation;
    };
    CHECK(read("gelu_python") == Activation::gelu);
    CHECK(read("gelu_fast") == Activation::gelu_tanh);
}
