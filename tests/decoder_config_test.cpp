// SPDX-License-Identifier: Apache-2.0
// config.json of decoders: what is read over, what stands for what is missing, and what is refused.
#include "models/decoder_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/decoder_logits.h"
#include "runtime/compile/plan.h"
#include "runtime/device/insides.h"
#include "tests/decoder_models.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

nlohmann::json config_of(const char* name) { return nlohmann::json::parse(read_text(kModels / name / "config.json")); }

std::string refusal(const nlohmann::json& config) {
    return error_of([&] { read_decoder(config.dump(), "config.json"); });
}

DecoderModel read(const nlohmann::json& config) { return read_decoder(config.dump(), "config.json"); }

/// Everything that a program of the model is made of: kernels, their constants and numbers, tables.
std::string program_of(const nlohmann::json& config) {
    const DecoderPlan described(device(), WeightLayout::none(), read(config), {.max_tokens = 64, .chunk = 8});
    const Plan& plan = Insides::plan(described, DecoderTask::prompt);
    std::string all;
    const auto append = [&](const auto& numbers) {
        for (const auto number : numbers) {
            all += std::to_string(static_cast<std::uint64_t>(number)) + " ";
        }
    };
    for (const PlannedDispatch& d : plan.dispatches) {
        all += plan.nodes[d.dispatch.node].label + ": ";
        for (const Kernel& kernel : d.dispatch.kernels) {
            all += std::string(kernel.shader->name) + " ";
            append(kernel.constants.values());
        }
        std::vector<View> views(d.dispatch.bindings.size() + d.dispatch.sizes_of.size());
        for (View& view : views) {
            view.size.fill(1);
        }
        const std::vector<std::int64_t> anything(plan.symbols.size());
        Command command;
        d.dispatch.prepare({views, plan.nodes[d.dispatch.node].params.get(), d.dispatch.words, anything}, command);
        append(command.push_bytes());
        all += "\n";
    }
    for (const StorageInfo& s : plan.storages) {
        if (s.kind == StorageKind::constant) {
            append(s.data->bytes());
        }
    }
    return all;
}

std::vector<std::int64_t> windows_of(const nlohmann::json& config) {
    std::vector<std::int64_t> windows;
    const DecoderModel model = read(config);
    for (const LayerCache& layer : model.facts().layers) {
        windows.push_back(layer.window);
    }
    return windows;
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
    CHECK(contains(with(good, "head_dim", 7), "config.json: head_dim = 7: heads of 7 dimensions have no pairs"));
    CHECK(contains(with(config_of("gemma3"), "head_dim", 7), "head_dim = 7: heads of 7 dimensions have no pairs"));
    CHECK(contains(with(good, "rope_parameters", nlohmann::json::array()),
                   "config.json: rope_parameters is not an object"));
    nlohmann::json wide = config_of("gpt2");
    wide.erase("n_inner");
    CHECK(contains(with(wide, "n_embd", 2147483647), "n_embd = 2147483647: is more than 536870911"));
    wide = config_of("gpt2");
    const std::int64_t width = wide["n_embd"].get<std::int64_t>();
    for (const std::int64_t heads : {width - 1, 2 * width}) {
        CHECK(contains(with(wide, "n_head", heads), "config.json: n_head = " + std::to_string(heads) +
                                                        ": does not divide n_embd, " + std::to_string(width)));
    }
    for (const char* name : {"llama", "mistral", "qwen2", "phi3", "olmo2"}) {
        nlohmann::json many = config_of(name);
        many.erase("head_dim");
        many["num_key_value_heads"] = 1;
        const std::int64_t hidden = many["hidden_size"].get<std::int64_t>();
        const std::string heads = std::to_string(hidden + 1);
        CHECK_MESSAGE(contains(with(many, "num_attention_heads", hidden + 1),
                               "num_attention_heads = " + heads + ": is more than hidden_size, " +
                                   std::to_string(hidden) + ", and head_dim is missing"),
                      name);
    }
    nlohmann::json older = config_of("llama_linear");
    CHECK(contains(with(older, "rope_scaling", {{"type", "dynamic"}, {"factor", 2}}), "dynamic"));
    CHECK(contains(with(older, "rope_scaling", {{"type", "linear"}, {"factor", 2}, {"mscale", 1}}),
                   "rope_scaling.mscale"));
    CHECK(contains(with(config_of("mistral"), "layer_types", {"full_attention"}), "layer_types"));
    CHECK(contains(with(config_of("gpt2"), "scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse"));
    CHECK(contains(refusal(nlohmann::json::array()), "is not an object"));
    CHECK(error_of([] { read_decoder("{", "config.json"); }).starts_with("config.json: "));
    for (const nlohmann::json& id : {nlohmann::json(4294967298), nlohmann::json(-1), nlohmann::json({2, 1e30})}) {
        nlohmann::json config = config_of("llama");
        config["eos_token_id"] = id;
        CHECK(contains(refusal(config), "must be a token's id"));
    }
}

TEST_CASE("decoder: fields that are missing are what transformers has for the family") {
    struct Defaults {
        const char* name;
        std::optional<std::int32_t> begin, end;
        std::int64_t kv_heads;  // of 64; 0: the field is needed, or is another
    };
    for (const Defaults& d :
         {Defaults{"llama", 1, 2, 64}, Defaults{"mistral", 1, 2, 8}, Defaults{"qwen2", {}, {}, 32},
          Defaults{"qwen3", {}, {}, 32}, Defaults{"gemma2", 2, 1, 4}, Defaults{"gemma3", 2, 1, 0},
          Defaults{"phi3", 1, 32000, 64}, Defaults{"olmo2", {}, 50279, 64}, Defaults{"gpt2", 50256, 50256, 0}}) {
        CAPTURE(d.name);
        nlohmann::json config = config_of(d.name);
        config["vocab_size"] = 60000;
        config.erase("bos_token_id");
        config.erase("eos_token_id");
        if (d.kv_heads != 0) {
            config["num_attention_heads"] = 64;
            config["hidden_size"] = 512;
            config.erase("num_key_value_heads");
            CHECK(read(config).facts().layers[0].kv_heads == d.kv_heads);
            config["num_key_value_heads"] = nullptr;
            CHECK(read(config).facts().layers[0].kv_heads == 64);
        }
        const auto ends = [&] { return read(config).facts().end; };
        CHECK(read(config).facts().begin == d.begin);
        CHECK(ends() == (d.end ? std::vector{*d.end} : std::vector<std::int32_t>()));
        config["vocab_size"] = d.end.value_or(9);  // which does not hold that id
        CHECK(ends().empty());
        config["vocab_size"] = 60000;
        config["bos_token_id"] = config["eos_token_id"] = nullptr;
        CHECK_FALSE(read(config).facts().begin);
        CHECK(ends().empty());
        config["eos_token_id"] = {7, 8};
        CHECK(ends() == std::vector{7, 8});
    }
    nlohmann::json few = config_of("mistral");
    few.erase("num_key_value_heads");
    CHECK(contains(refusal(few), "the default, 8, does not divide the 4 heads"));
}

TEST_CASE("decoder: generation_config.json says which ids begin and end a text, whether config.json does or not") {
    const TemporaryFolder own;
    std::filesystem::copy(kModels / "llama", own.path());
    const auto read_again = [&](const char* generation) {
        std::ofstream(own.path() / "generation_config.json") << generation;
        return read_decoder(Checkpoint(own.path())).facts();
    };
    nlohmann::json config = config_of("llama");
    config.erase("bos_token_id");
    config.erase("eos_token_id");
    std::ofstream(own.path() / "config.json") << config.dump();
    CHECK(read_again("{}").begin == 1);
    CHECK(read_again("{}").end == std::vector{2});
    config["eos_token_id"] = 4;
    std::ofstream(own.path() / "config.json") << config.dump();
    CHECK(read_again("{}").end == std::vector{4});
    CHECK(read_again(R"({"eos_token_id": null})").end.empty());
    const DecoderFacts said = read_again(R"({"bos_token_id": 5, "eos_token_id": [6, 7]})");
    CHECK(said.begin == 5);
    CHECK(said.end == std::vector{6, 7});
    CHECK(said.not_obeyed.empty());
}

TEST_CASE("decoder: fields of generation_config.json that are not obeyed are told") {
    const TemporaryFolder own;
    std::filesystem::copy(kModels / "llama", own.path());
    {  // without that file transformers takes them from config.json
        nlohmann::json config = config_of("llama");
        config["repetition_penalty"] = 1.5;
        std::ofstream(own.path() / "config.json") << config.dump();
        std::filesystem::remove(own.path() / "generation_config.json");
        CHECK(read_decoder(Checkpoint(own.path())).facts().not_obeyed ==
              std::vector<std::string>{"repetition_penalty"});
        std::ofstream(own.path() / "generation_config.json") << "{}";
        CHECK(read_decoder(Checkpoint(own.path())).facts().not_obeyed.empty());
    }
    const auto told = [&](const nlohmann::json& generation) {
        std::ofstream(own.path() / "generation_config.json") << generation.dump();
        return read_decoder(Checkpoint(own.path())).facts().not_obeyed;
    };
    using Names = std::vector<std::string>;
    CHECK(told({{"repetition_penalty", 1.0},
                {"no_repeat_ngram_size", 0},
                {"suppress_tokens", nlohmann::json::array()},
                {"forced_eos_token_id", nullptr},
                {"do_sample", true},
                {"temperature", 0.6},
                {"top_k", 20}}) == Names{});
    CHECK(told({{"repetition_penalty", 1.1}, {"suppress_tokens", {3, 4}}}) ==
          Names{"repetition_penalty", "suppress_tokens"});
    for (const auto& [name, value] :
         std::initializer_list<std::pair<const char*, nlohmann::json>>{{"no_repeat_ngram_size", 2},
                                                                       {"bad_words_ids", {{5}}},
                                                                       {"begin_suppress_tokens", {220}},
                                                                       {"forced_bos_token_id", 1},
                                                                       {"forced_eos_token_id", 2},
                                                                       {"min_new_tokens", 5},
                                                                       {"min_length", 9},
                                                                       {"encoder_repetition_penalty", 1.2},
                                                                       {"encoder_no_repeat_ngram_size", 3},
                                                                       {"forced_decoder_ids", {{1, 5}}},
                                                                       {"force_words_ids", {{5}}},
                                                                       {"constraints", {"a"}},
                                                                       {"guidance_scale", 1.5},
                                                                       {"penalty_alpha", 0.6},
                                                                       {"watermarking_config", {{"bias", 2.5}}},
                                                                       {"sequence_bias", {{{5}, 0.5}}},
                                                                       {"stop_strings", {"\n"}},
                                                                       {"exponential_decay_length_penalty", {5, 1.5}},
                                                                       {"num_beams", 4}}) {
        CHECK(told({{name, value}}) == Names{name});
    }
}

TEST_CASE("decoder: layers of one kind have rope_parameters as transformers saves them for Gemma 3") {
    nlohmann::json config = config_of("gemma3");
    config.erase("rope_scaling");
    config["rope_parameters"] = {{"full_attention", {{"rope_theta", 1000000.0}, {"rope_type", "default"}}},
                                 {"sliding_attention", {{"rope_theta", 10000.0}, {"rope_type", "default"}}}};
    for (const char* kind : {"full_attention", "sliding_attention"}) {
        config["layer_types"] = std::vector<std::string>(config["num_hidden_layers"], kind);
        const std::string program = program_of(config);
        nlohmann::json saved = config;
        saved["rope_parameters"]["rope_type"] = "default";
        saved["rope_parameters"]["rope_theta"] = nullptr;
        CHECK(program_of(saved) == program);
        saved["rope_parameters"]["rope_theta"] = 5.0;
        CHECK(contains(refusal(saved), "rope_parameters.rope_theta"));
    }
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

TEST_CASE("decoder: a config.json that is nested too deep, or claims too many layers, is refused") {
    const auto said = [](const std::string& text) { return error_of([&] { read_decoder(text, "config.json"); }); };
    CHECK(contains(said(std::string(1 << 20, '[')), "nested deeper than 64 levels"));
    std::string objects;
    for (int i = 0; i < 100000; ++i) {
        objects += "{\"a\":";
    }
    CHECK(contains(said(objects), "nested deeper than 64 levels"));
    nlohmann::json deep = 1;
    for (int i = 0; i < 60; ++i) {
        deep = nlohmann::json::array({deep});
    }
    const std::string refused = with(config_of("llama"), "num_attention_heads", deep);
    CHECK(contains(refused, "num_attention_heads = [[[["));
    const std::string wide = with(config_of("llama"), "num_attention_heads", std::string(1 << 20, 'x'));
    CHECK(contains(wide, "num_attention_heads = \"xxxx"));
    CHECK(wide.size() < 1000);
    CHECK(contains(with(config_of("llama"), "num_hidden_layers", 100000), "num_hidden_layers = 100000: is more than"));
    CHECK(contains(with(config_of("gpt2"), "n_layer", 100000), "n_layer = 100000: is more than"));
    const TemporaryFolder folder;
    std::filesystem::copy(kModels / "llama", folder.path());
    nlohmann::json many = config_of("llama");
    many["num_hidden_layers"] = 4096;
    std::ofstream(folder.path() / "config.json") << many.dump();
    const Checkpoint small(folder.path());
    CHECK(contains(error_of([&] { read_decoder(small); }), "4096 layers are more than the files have tensors"));
}

TEST_CASE("decoder: layers cost alike, however many there are") {
    const auto seconds = [](int layers) {
        nlohmann::json config = config_of("llama");
        config["num_hidden_layers"] = layers;
        const DecoderModel model = read(config);
        const std::clock_t begin = std::clock();
        Graph g;
        decoder_logits(g.input("tokens", {1, 4}, DType::i32), model);
        return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    };
    const double few = std::min({seconds(128), seconds(128), seconds(128)});
    // 16 times as long; 240 times where names were searched one by one
    CHECK(std::min({seconds(2048), seconds(2048)}) < 100 * few);
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

TEST_CASE("decoder: config.json has the fields of published checkpoints, family by family") {
    const nlohmann::json any{{"attention_dropout", 0.0}, {"initializer_range", 0.02}, {"torch_dtype", "bfloat16"},
                             {"use_cache", true},        {"rope_scaling", nullptr},   {"rope_theta", 10000.0}};
    const nlohmann::json phi4_mini{{"attention_bias", false}, {"full_attn_mod", 1}, {"interpolate_factor", 1},
                                   {"lm_head_bias", false},   {"mlp_bias", false},  {"partial_rotary_factor", 0.75}};
    struct Published {
        const char* name;
        nlohmann::json fields;
        std::vector<const char*> wrong;  ///< those that may not be otherwise
    };
    const auto merged = [&](const char* name, const nlohmann::json& fields) {
        nlohmann::json config = config_of(name);
        config.erase("rope_parameters");
        config.update(any);
        config.update(fields);
        return config;
    };
    for (const Published& p : std::vector<Published>{
             {"llama", {{"max_sequence_length", 128}, {"pad_token_id", -1}}, {"max_sequence_length"}},
             {"llama", {{"mlp_bias", false}, {"attention_bias", false}, {"pretraining_tp", 1}}, {}},
             {"mistral", {{"attention_bias", false}, {"sliding_window", nullptr}}, {"attention_bias"}},
             {"qwen2",
              {{"attention_bias", false},
               {"max_window_layers", 2},
               {"sliding_window", 64},
               {"use_mrope", false},
               {"use_sliding_window", false}},
              {"attention_bias", "use_mrope"}},
             {"qwen3",
              {{"attention_bias", false},
               {"max_window_layers", 2},
               {"sliding_window", nullptr},
               {"use_sliding_window", false}},
              {}},
             {"gemma2",
              {{"attention_bias", false},
               {"cache_implementation", "hybrid"},
               {"hidden_act", "gelu_pytorch_tanh"},
               {"sliding_window", 6},
               {"sliding_window_size", 6}},
              {"sliding_window_size"}},
             {"gemma3",
              {{"attention_bias", false},
               {"attn_logit_softcapping", nullptr},
               {"cache_implementation", "hybrid"},
               {"final_logit_softcapping", nullptr},
               {"rope_local_base_freq", 10000},
               {"sliding_window_pattern", 6}},
              {}},
             {"phi3",
              {{"attention_bias", false},
               {"auto_map", {{"AutoConfig", "configuration_phi3.Phi3Config"}}},
               {"embd_pdrop", 0.0},
               {"original_max_position_embeddings", 128}},
              {"attention_bias"}},
             {"phi3", phi4_mini, {"full_attn_mod", "interpolate_factor", "lm_head_bias", "mlp_bias"}},
             {"olmo2", {{"attention_bias", false}, {"pad_token_id", 1}}, {}}}) {
        CAPTURE(p.name);
        const nlohmann::json good = merged(p.name, p.fields);
        CHECK(refusal(good) == "");
        nlohmann::json without = good;
        for (const char* field : p.wrong) {
            CAPTURE(field);
            const nlohmann::json other = good[field].is_boolean() ? nlohmann::json(!good[field].get<bool>())
                                                                  : nlohmann::json(good[field].get<int>() + 1);
            CHECK(contains(with(good, field, other), std::string(field) + " = " + other.dump()));
            without.erase(field);
        }
        CHECK(program_of(good) == program_of(without));
    }
    CHECK(contains(with(config_of("gemma2"), "sliding_window_size", 7), "differs from sliding_window, which is 6"));
    CHECK(contains(with(merged("phi3", phi4_mini), "rope_scaling", {{"type", "longrope"}}), "without longrope"));
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
    const auto set = [](nlohmann::json config, const nlohmann::json& fields) {
        config.update(fields);
        return config;
    };
    const nlohmann::json gemma = config_of("gemma2"), mistral = config_of("mistral"), qwen = config_of("qwen2_window");
    const Fields caps{"attn_logit_softcapping", "final_logit_softcapping"};
    const nlohmann::json usual_caps{{caps[0], 50.0}, {caps[1], 30.0}};
    CHECK(program_of(without(gemma, caps)) == program_of(set(gemma, usual_caps)));
    CHECK(program_of(without(gemma, caps)) != program_of(gemma));
    for (const char* cap : caps) {  // which transformers divides by
        CHECK(contains(refusal(set(gemma, {{cap, 0.0}})), std::string(cap) + " = 0.0: is out of range"));
    }
    CHECK(program_of(null(gemma, caps)) != program_of(without(gemma, caps)));
    using Windows = std::vector<std::int64_t>;
    CHECK(windows_of(mistral) == Windows{7, 7});
    CHECK(windows_of(without(mistral, {"sliding_window"})) == Windows{4096, 4096});
    CHECK(windows_of(null(mistral, {"sliding_window"})) == Windows{0, 0});
    CHECK(windows_of(without(qwen, {"sliding_window", "layer_types"})) == Windows{0, 4096});
    CHECK(windows_of(null(qwen, {"sliding_window", "layer_types"})) == Windows{0, 0});
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
    CHECK(contains(with(config_of("llama_linear"), "rope_theta", -1), "config.json: rope_theta = -1: is out of range"));
    const nlohmann::json yarn{{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"original_max_position_embeddings", 32}};
    nlohmann::json config = config_of("llama");  // trained for 128
    config["rope_parameters"] = yarn;
    const std::string without_factor = program_of(config);
    config["rope_parameters"]["factor"] = nullptr;
    CHECK(program_of(config) == without_factor);
    config["rope_parameters"]["factor"] = 4.0;
    CHECK(program_of(config) == without_factor);
    config["rope_parameters"]["factor"] = 3.0;
    CHECK(program_of(config) != without_factor);
    for (const char* name : {"llama", "mistral", "qwen2", "qwen3", "gemma2"}) {
        CAPTURE(name);
        CHECK(contains(with(config_of(name), "partial_rotary_factor", 0.5), "partial_rotary_factor = 0.5"));
        CHECK(with(config_of(name), "partial_rotary_factor", 1) == "");
    }
    CHECK(contains(refusal(rope({{"partial_rotary_factor", 0.5}}, "")), "rope_parameters.partial_rotary_factor"));
    CHECK(contains(refusal(rope({{"factor", 0}}, "")), "rope_parameters.factor = 0: must be above 0"));
    CHECK(
        contains(refusal(rope({{"low_freq_factor", 0}}, "")), "rope_parameters.low_freq_factor = 0: must be above 0"));
    CHECK(contains(refusal(rope({{"high_freq_factor", 0.5}}, "")),
                   "rope_parameters.high_freq_factor = 0.5: must be above low_freq_factor"));
    for (const auto& [field, number] : std::vector<std::pair<const char*, double>>{{"beta_fast", 0},
                                                                                   {"beta_slow", -1},
                                                                                   {"attention_factor", 0},
                                                                                   {"attention_factor", 1e-50},
                                                                                   {"attention_factor", 1e40}}) {
        nlohmann::json wrong = yarn;
        wrong[field] = number;
        CHECK(contains(with(config_of("llama"), "rope_parameters", wrong),
                       "rope_parameters." + std::string(field) + " = "));
    }
}

TEST_CASE("decoder: numbers that would be taken for none, and those beyond what is counted with, are refused") {
    for (const double number : {0.0, 1e-50, 1e40}) {
        CHECK(contains(with(config_of("gemma2"), "final_logit_softcapping", number),
                       "final_logit_softcapping = " + nlohmann::json(number).dump() + ": is out of range"));
    }
    CHECK(contains(with(config_of("llama"), "rms_norm_eps", 1e40), "rms_norm_eps = 1e+40: is out of range"));
    CHECK(contains(with(config_of("llama"), "vocab_size", 9223372036854775807),
                   "vocab_size = 9223372036854775807: must be a whole number from 1 to 2147483647"));
}

TEST_CASE("decoder: activations go by every name that transformers has for them") {
    const auto program = [](const char* name) {
        nlohmann::json config = config_of("gpt2");
        config["activation_function"] = name;
        return program_of(config);
    };
    CHECK(program("gelu_python") == program("gelu"));
    CHECK(program("gelu_fast") == program("gelu_new"));
    CHECK(program("gelu_fast") != program("gelu"));
}

TEST_CASE("decoder: Gemma 3's two RoPEs are read in both generations of config.json") {
    const nlohmann::json today = config_of("gemma3");
    nlohmann::json before = today;
    for (const char* field : {"rope_parameters", "layer_types", "_sliding_window_pattern"}) {
        before.erase(field);
    }
    before.update({{"rope_theta", 1e5},
                   {"rope_local_base_freq", 1e4},
                   {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}},
                   {"sliding_window_pattern", 2}});
    CHECK(program_of(before) == program_of(today));
    CHECK(windows_of(before) == std::vector<std::int64_t>{6, 0});
    before["sliding_window_pattern"] = 1;
    CHECK(windows_of(before) == std::vector<std::int64_t>{0, 0});
    before.erase("sliding_window_pattern");  // 6
    CHECK(windows_of(before) == std::vector<std::int64_t>{6, 6});
    nlohmann::json other = today;
    other["rope_parameters"]["sliding_attention"]["rope_theta"] = 2e4;
    CHECK(program_of(other) != program_of(today));
    other = today;
    other["rope_parameters"]["full_attention"]["rope_theta"] = 2e4;
    CHECK(program_of(other) != program_of(today));
    other.erase("rope_parameters");  // a million and ten thousand
    nlohmann::json usual = other;
    usual.update({{"rope_theta", 1e6}, {"rope_local_base_freq", 1e4}});
    CHECK(program_of(usual) == program_of(other));

    CHECK(contains(with(today, "rope_scaling", {{"type", "linear"}, {"factor", 2}}),
                   "stands beside rope_parameters = {"));
    other = today;
    other["rope_parameters"]["chunked_attention"] = {{"rope_theta", 1.0}};
    CHECK(contains(refusal(other), "rope_parameters.chunked_attention"));
    other = today;
    other["rope_parameters"]["full_attention"].erase("factor");
    CHECK(contains(refusal(other), "rope_parameters.full_attention.factor = (missing): is needed by \"linear\""));
    other = today;
    other["rope_parameters"]["full_attention"] = {{"rope_type", "yarn"}, {"rope_theta", 1e5}, {"factor", 4.0}};
    const std::string yarn = program_of(other);
    other["rope_parameters"]["full_attention"]["truncate"] = true;
    CHECK(program_of(other) == yarn);
    other["rope_parameters"]["full_attention"]["truncate"] = false;
    CHECK(contains(refusal(other), "rope_parameters.full_attention.truncate = false: is not supported"));
    CHECK(contains(with(today, "attn_logit_softcapping", 50.0), "attn_logit_softcapping = 50.0: is not supported"));
    CHECK(contains(with(today, "use_bidirectional_attention", true), "use_bidirectional_attention"));
    CHECK(contains(with(today, "head_dim", nullptr), "head_dim = null: is needed"));
    for (const char* name : {"gemma2", "gemma3"}) {
        CHECK(contains(with(config_of(name), "sliding_window", nullptr), "a layer slides, but the window has no size"));
    }
    CHECK(program_of(other = today) == program_of(today));
    other["final_logit_softcapping"] = 30.0;
    CHECK(program_of(other) != program_of(today));
}

TEST_CASE("decoder: of Phi-3's RoPE a part of a head may turn, and longrope is refused") {
    const nlohmann::json today = config_of("phi3");
    nlohmann::json before = today;
    before.erase("rope_parameters");
    before.update({{"rope_theta", 10000.0}, {"rope_scaling", nullptr}, {"partial_rotary_factor", 0.5}});
    CHECK(program_of(before) == program_of(today));
    before["partial_rotary_factor"] = 1.0;
    CHECK(program_of(before) != program_of(today));
    nlohmann::json whole = before;
    whole.erase("partial_rotary_factor");
    CHECK(program_of(before) == program_of(whole));
    // 0.4 of 8 dimensions are 3, which make no pairs
    for (const double factor : {0.0, 0.4, 1.5, -0.5}) {
        CAPTURE(factor);
        CHECK(contains(with(before, "partial_rotary_factor", factor),
                       "must turn an even number of the 8 dimensions of a head"));
    }
    for (const char* kind : {"longrope", "su", "yarn", "linear"}) {
        CAPTURE(kind);
        CHECK(contains(with(before, "rope_scaling", {{"type", kind}, {"factor", 2.0}}),
                       "of Phi-3's RoPE only the default kind is, without longrope"));
        CHECK(contains(with(today, "rope_parameters", {{"rope_type", kind}, {"factor", 2.0}}),
                       "of Phi-3's RoPE only the default kind is, without longrope"));
    }
    CHECK(windows_of(today) == std::vector<std::int64_t>{9, 9});
    nlohmann::json open = today;
    open["sliding_window"] = nullptr;
    CHECK(windows_of(open) == std::vector<std::int64_t>{0, 0});
    CHECK(contains(with(today, "sliding_window", 0), "sliding_window = 0"));
}

TEST_CASE("decoder: a window of no keys is refused where there are windows") {
    CHECK(contains(with(config_of("mistral"), "sliding_window", 0), "sliding_window = 0: must be at least 1, or null"));
    nlohmann::json qwen = config_of("qwen2_window");
    qwen.erase("layer_types");
    CHECK(refusal(qwen) == "");
    CHECK(contains(with(qwen, "sliding_window", 0), "sliding_window = 0: must be at least 1, or null"));
    qwen["use_sliding_window"] = false;
    CHECK(with(qwen, "sliding_window", 0) == "");
}

TEST_CASE("decoder: Gemma 2's activation is hidden_activation, whatever hidden_act says") {
    nlohmann::json config = config_of("gemma2");
    config["hidden_activation"] = "gelu_pytorch_tanh";
    const std::string usual = program_of(config);
    config["hidden_act"] = "relu";
    CHECK(program_of(config) == usual);
    config.erase("hidden_activation");
    CHECK(program_of(config) == usual);
    config["hidden_activation"] = "relu";
    CHECK(program_of(config) != usual);
}

TEST_CASE("decoder: OLMo 2's fields that are missing are what transformers takes them for") {
    nlohmann::json config = config_of("olmo2");
    const std::string program = program_of(config);
    for (const char* field : {"rms_norm_eps", "hidden_act", "attention_bias", "tie_word_embeddings"}) {
        config.erase(field);
    }
    CHECK(program_of(config) == program);
    config["rms_norm_eps"] = 1e-6;
    CHECK(program_of(config) != program);
    CHECK(contains(with(config, "clip_qkv", 8.0), "clip_qkv = 8.0: is not known"));
}
