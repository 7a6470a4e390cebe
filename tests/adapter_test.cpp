// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA): trained, saved, loaded, merged, refused.
#include "models/adapter.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "layers/linear.h"
#include "models/adapter_states.h"
#include "tests/fine_tuning_models.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("fine-tuning");

TEST_CASE("fine-tuning: adapters learn beside weights of every type, and change nothing else") {
    const ExpectedTraining expected(kModels / "llama");
    const TunedModel m("llama");
    for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8, WeightType::int4}) {
        CAPTURE(static_cast<int>(type));
        FineTuneOptions options = small({.optimizer = AdamW{.learning_rate = 1e-2}});
        options.lora = {.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj", "down_proj"}};
        options.load.matrices = type;
        FineTuner tuner = m.tuner(options);
        CHECK(tuner.trainer().parameters().size() == 12);
        const float first = tuner.take_step(expected.batch(0)).loss;
        const double tolerance = type == WeightType::f32 ? 1e-5 : type == WeightType::f16 ? 1e-2 : 0.2;
        CHECK(first == doctest::Approx(expected.numbers("losses")[0]).epsilon(tolerance));
        float last = first;
        for (int step = 0; step < 10; ++step) {
            last = tuner.take_step(expected.batch(0)).loss;
        }
        CHECK(last < 0.9f * first);
    }
}

TEST_CASE("fine-tuning: a decoder answers with an adapter as its merged model does") {
    for (const char* name : {"llama", "gpt2_bare"}) {
        CAPTURE(name);
        const ExpectedTraining expected(kModels / name);
        const Expected answers(kModels / name);
        const TunedModel m(name);
        const TemporaryFolder folder;
        FineTuneOptions options = small({.optimizer = AdamW{.learning_rate = 3e-2}});
        const bool gpt2 = std::string(name) == "gpt2_bare";
        options.lora = LoraOptions{.rank = 4, .alpha = 8};
        options.lora->targets = gpt2 ? std::vector<std::string>{"c_attn", "c_proj"}
                                     : std::vector<std::string>{"q_proj", "down_proj", "lm_head"};
        FineTuner tuner = m.tuner(options);
        for (int step = 0; step < 6; ++step) {
            tuner.take_step(expected.batch(step));
        }
        tuner.save(folder.path() / "adapter");
        const Adapter adapter(folder.path() / "adapter");
        merge_adapter(folder.path() / "merged", m.checkpoint, m.model, adapter);
        const Checkpoint merged(folder.path() / "merged");
        const Weights base = load_decoder(device(), m.checkpoint, m.model);
        Decoder whole(device(), load_decoder(device(), merged, m.model), m.model, {.score = true});
        Decoder apart(device(), base, m.model, {.lora = adapter.options(), .score = true});
        CHECK(worst_error(apart.score(answers.ids), answers.logits) <= 1.0);  // no adapter yet
        apart.set_adapter(adapter);
        const std::vector<float> adapted = apart.score(answers.ids);
        CHECK(worst_error(adapted, whole.score(answers.ids)) <= 1.0);
        CHECK(worst_error(adapted, answers.logits) > 10.0);
        apart.clear_adapter();
        CHECK(worst_error(apart.score(answers.ids), answers.logits) <= 1.0);

        // room for more layers and a larger rank
        LoraOptions room = adapter.options();
        room.rank = 7;
        room.targets = {"*"};
        Decoder wide(device(), base, m.model, {.lora = room, .score = true});
        wide.set_adapter(adapter);
        CHECK(worst_error(wide.score(answers.ids), adapted) <= 1.0);
        wide.prompt(answers.prompt);
        wide.save_cache(folder.path() / "cache.safetensors");
        const std::int64_t left = wide.room();
        wide.clear_adapter();  // the cache is forgotten
        CHECK(wide.room() == left + static_cast<std::int64_t>(answers.prompt.size()));
        wide.restore_cache(folder.path() / "cache.safetensors");
        CHECK(wide.room() == left);
    }
}

TEST_CASE("fine-tuning: an adapter of the bare model gives what the same of the whole one does") {
    const TunedModel m("gpt2_bare");
    const TemporaryFolder folder;
    FineTuneOptions options = small({.optimizer = AdamW{.learning_rate = 3e-2}});
    options.lora = {.rank = 2, .targets = {"c_proj"}};
    FineTuner tuner = m.tuner(options);
    tuner.take_step(ExpectedTraining(kModels / "gpt2_bare").batch(0));
    tuner.save(folder.path() / "whole");
    const auto renamed = [&](const char* to, const auto& rename) {
        const Safetensors whole(folder.path() / "whole" / "adapter_model.safetensors");
        std::vector<HostTensor> tensors(whole.tensors().begin(), whole.tensors().end());
        rename(tensors);
        std::filesystem::create_directory(folder.path() / to);
        save_safetensors(folder.path() / to / "adapter_model.safetensors", tensors);
        std::filesystem::copy(folder.path() / "whole" / "adapter_config.json",
                              folder.path() / to / "adapter_config.json");
    };
    const auto without_prefix = [](std::vector<HostTensor>& tensors) {
        for (HostTensor& t : tensors) {
            const std::size_t at = t.name.find("transformer.");
            REQUIRE(at != std::string::npos);
            t.name.erase(at, std::strlen("transformer."));
        }
    };
    renamed("bare", without_prefix);
    renamed("twice", [&](std::vector<HostTensor>& tensors) {
        std::vector<HostTensor> bare = tensors;
        without_prefix(bare);
        tensors.insert(tensors.end(), bare.begin(), bare.end());
    });
    const Adapter whole(folder.path() / "whole"), bare(folder.path() / "bare"), twice(folder.path() / "twice");
    const auto merged = [&](const char* to, const Adapter& adapter) {
        merge_adapter(folder.path() / to, m.checkpoint, m.model, adapter);
        return read_text(folder.path() / to / "model.safetensors");
    };
    CHECK(merged("merged_bare", bare) == merged("merged_whole", whole));
    CHECK(contains(error_of([&] { merged("merged_twice", twice); }), "is there twice"));

    const Weights weights = load_decoder(device(), m.checkpoint, m.model);
    const auto score = [&](const Adapter& adapter) {
        Decoder decoder(device(), weights, m.model, {.lora = adapter.options(), .score = true});
        const std::vector<float> before = decoder.score({5, 6, 7});
        decoder.set_adapter(adapter);
        const std::vector<float> after = decoder.score({5, 6, 7});
        CHECK(after != before);
        return after;
    };
    CHECK(score(bare) == score(whole));
    CHECK(contains(error_of([&] { score(twice); }), "two layers are for transformer.h.0."));
}

TEST_CASE("fine-tuning: an adapter of a last matrix that is tied is not merged, and said so") {
    const TemporaryFolder folder;
    const std::filesystem::path base = folder.path() / "base";
    std::filesystem::copy(kModels / "gemma2", base);
    {
        const TunedModel m("gemma2");
        std::vector<HostTensor> tensors;
        for (const std::string& name : m.checkpoint.names()) {
            tensors.push_back(*m.checkpoint.find(name));
        }
        tensors.push_back(*m.checkpoint.find("model.embed_tokens.weight"));
        tensors.back().name = "lm_head.weight";
        save_safetensors(base / "model.safetensors", tensors);
    }
    const std::filesystem::path adapter = folder.path() / "adapter";
    {
        FineTuneOptions options = small();
        options.lora = {.rank = 2, .targets = {"lm_head"}};
        FineTuner tuner = TunedModel("gemma2").tuner(options);
        tuner.save(adapter);
    }
    for (const std::filesystem::path& model : {base, kModels / "gemma2"}) {
        const Checkpoint checkpoint(model);
        const DecoderModel read = read_decoder(checkpoint);
        CHECK(error_of([&] { merge_adapter(folder.path() / "merged", checkpoint, read, Adapter(adapter)); }) ==
              model.string() + ": layer lm_head of adapter " + adapter.string() +
                  " cannot be merged: the matrix is tied to model.embed_tokens.weight");
        CHECK(!std::filesystem::exists(folder.path() / "merged"));
    }
}

TEST_CASE("fine-tuning: an adapter whose configuration has no text leaves the files as they were") {
    const TemporaryFolder folder;
    FineTuneOptions options = small();
    options.lora = {.rank = 2, .targets = {"q_proj"}};
    FineTuner tuner = TunedModel("llama").tuner(options);
    const auto save = [&](const std::string& base) {
        save_adapter(folder.path() / "adapter", tuner.trainer().state(), *options.lora, base);
    };
    CHECK(contains(error_of([&] { save("\xff"); }), "adapter_config.json: the model's name is not UTF-8"));
    CHECK(!std::filesystem::exists(folder.path() / "adapter"));
    save("llama");
    CHECK(Adapter(folder.path() / "adapter").options().rank == 2);
}

TEST_CASE("fine-tuning: states without an adapter are not saved as one") {
    const TemporaryFolder folder;
    Graph g;
    g.state("cache.key", {2, 3});
    const State state = device().make_state({&g});
    const std::filesystem::path adapter = folder.path() / "adapter";
    CHECK(error_of([&] { save_adapter(adapter, state, {.rank = 2, .targets = {"q"}}, "base"); }) ==
          "save_adapter: the state has no adapter to save in " + adapter.string());
    CHECK(!std::filesystem::exists(adapter));
}

TEST_CASE("fine-tuning: a layer that is described twice has one adapter, which learns from both") {
    Graph g;
    const Value x = g.input("x", {3, 4});
    const Lora lora(g, {.rank = 2, .alpha = 2, .targets = {"q"}});
    const Value y = linear_layer(linear_layer(x, "q", 4, false), "q", 4, false);
    REQUIRE(lora.parameters().size() == 2);
    const std::vector<float> weight(16, 0.25f), a(8, 0.5f), batch(12, 1.0f);
    const std::vector<HostTensor> tensors{host_tensor("q.weight", {4, 4}, weight)};
    Trainer trainer(device(), g, sum(y), lora.parameters(), {.optimizer = Sgd{.learning_rate = 1.0}},
                    device().load(tensors));
    trainer.state().write("q.lora_A.weight", std::as_bytes(std::span(a)));
    trainer.program().upload("x", batch);
    trainer.take_step();
    const std::vector<std::byte> bytes = trainer.state().read("q.lora_B.weight");
    std::vector<float> b(8);
    std::memcpy(b.data(), bytes.data(), bytes.size());
    // each of three rows, in either use, adds its inner product with a row of A
    CHECK(b == std::vector<float>(8, -12.0f));
}

TEST_CASE("fine-tuning: an adapter that is damaged or of another kind is refused by name") {
    const ExpectedTraining expected(kModels / "llama");
    const TunedModel m("llama");
    const TemporaryFolder folder;
    FineTuneOptions options = small();
    options.lora = {.rank = 2, .targets = {"q_proj"}};
    FineTuner tuner = m.tuner(options);
    tuner.save(folder.path());
    const std::filesystem::path config = folder.path() / "adapter_config.json";
    const std::string text = read_text(config);
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = text;
        const std::size_t at = changed.find(from);
        REQUIRE(at != std::string::npos);
        changed.replace(at, from.size(), to);
        std::ofstream(config) << changed;
        return Adapter(folder.path());
    };
    CHECK(with("\"r\"", "\"r\"").options().targets.size() == 2);
    CHECK(with("\"r\"", "\"use_qalora\": false, \"qalora_group_size\": 16, \"r\"").options().rank == 2);
    CHECK_THROWS_AS(with("\"lora_alpha\": 8.0", "\"lora_alpha\": 1e300"), Error);
    CHECK_THROWS_AS(with("\"bias\": \"none\"", "\"bias\": \"all\""), Error);
    CHECK_THROWS_AS(with("\"r\"", "\"use_dora\": true, \"r\""), Error);
    CHECK_THROWS_AS(with("\"LORA\"", "\"IA3\""), Error);
    for (const char* harmless : {"true", "false", "null", "\"gaussian\"", "\"eva\"", "\"orthogonal\""}) {
        CAPTURE(harmless);
        CHECK(with("\"r\"", "\"init_lora_weights\": " + std::string(harmless) + ", \"r\"").options().rank == 2);
    }
    for (const char* kind : {"\"olora\"", "\"pissa\"", "\"pissa_niter_4\"", "\"corda\"", "\"loftq\"", "1"}) {
        const std::string field = "\"init_lora_weights\": " + std::string(kind);
        const std::string said = error_of([&] { with("\"r\"", field + ", \"r\""); });
        CHECK(said == config.string() + ": init_lora_weights = " + kind +
                          ": is not supported: loading such an adapter changes the model's own weights");
    }
    CHECK_THROWS_AS(with("{", "["), Error);
    std::ofstream(config) << text;
    const Adapter adapter(folder.path());
    const TunedModel other("gpt2");
    CHECK_THROWS_AS(merge_adapter(folder.path() / "merged", other.checkpoint, other.model, adapter), Error);
    CHECK(!std::filesystem::exists(folder.path() / "merged"));
    {
        State& state = tuner.trainer().state();
        for (const StoredTensor& t : state.layout().tensors()) {
            if (!adapted_layer(t.name).empty()) {
                const std::vector<float> large(static_cast<std::size_t>(t.shape[0] * t.shape[1]), 1e30f);
                state.write(t.name, std::as_bytes(std::span(large)));
            }
        }
        tuner.save(folder.path() / "large");
        const std::string message = error_of(
            [&] { merge_adapter(folder.path() / "merged", m.checkpoint, m.model, Adapter(folder.path() / "large")); });
        CHECK(message ==
              "tensor model.layers.0.self_attn.q_proj.weight: number 0 would be inf with the adapter, as "
              "F32 not finite");
    }
    Decoder narrow(device(), load_decoder(device(), m.checkpoint, m.model), m.model,
                   {.lora = LoraOptions{.rank = 1, .targets = {"q_proj"}}});
    CHECK_THROWS_AS(narrow.set_adapter(adapter), Error);
    Decoder none(device(), narrow.weights(), m.model, {});
    CHECK_THROWS_WITH_AS(none.set_adapter(adapter), "Decoder: DecoderOptions::lora was not asked for", Error);
    const std::filesystem::path tensors = folder.path() / "adapter_model.safetensors";
    std::filesystem::resize_file(tensors, std::filesystem::file_size(tensors) - 3);
    CHECK_THROWS_AS(Adapter(folder.path()), Error);
}

TEST_SUITE_END();
