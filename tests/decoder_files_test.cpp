// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose files are missing, cut, or do not fit each other.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/decoder_logits.h"
#include "models/text_encoder.h"
#include "tests/decoder_models.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "train/fine_tuner.h"

using namespace vkf;
using namespace vkf::test;

namespace {

namespace fs = std::filesystem;

nlohmann::json good_config(const char* name) {
    return nlohmann::json::parse(read_text(kModels / name / "config.json"));
}

/// A copy of a checkpoint that a test may damage; gone at its end.
struct Copy {
    TemporaryFolder own;
    fs::path folder = own.path();
    explicit Copy(const char* name) { fs::copy(kModels / name, folder); }
    std::string load() const {
        return error_of([&] {
            const Checkpoint checkpoint(folder);
            load_decoder(device(), checkpoint, read_decoder(checkpoint));
        });
    }
    /// Writes the tensors again, with one more; the bytes are copied before.
    void add(const HostTensor& tensor) const {
        std::vector<std::vector<std::byte>> bytes;
        std::vector<HostTensor> tensors;
        {
            const Checkpoint checkpoint(folder);
            for (const std::string& name : checkpoint.names()) {
                tensors.push_back(*checkpoint.find(name));
            }
            tensors.push_back(tensor);
            for (HostTensor& t : tensors) {
                bytes.emplace_back(t.data.begin(), t.data.end());
                t.data = bytes.back();
            }
        }
        save_safetensors(folder / "model.safetensors", tensors);
    }
    void cut(const std::string& file, std::uintmax_t bytes) const { fs::resize_file(folder / file, bytes); }
    void write(const std::string& file, const nlohmann::json& text) const { std::ofstream(folder / file) << text; }
    void write_text(const std::string& file, const std::string& text) const { std::ofstream(folder / file) << text; }
};

}  // namespace

TEST_SUITE_BEGIN("decoder");

TEST_CASE("decoder: files that are missing, cut or do not fit are refused by name") {
    CHECK(contains(error_of([] { Checkpoint(kModels / "none"); }), "none: is not a folder"));
    // where the system does not say whether there is a folder
    CHECK(contains(error_of([] { Checkpoint(kModels / std::string(5000, 'n')); }), "cannot be read"));
    {
        const Copy copy("llama");
        fs::remove(copy.folder / "config.json");
        CHECK(contains(copy.load(), "config.json"));
    }
    {
        const Copy copy("llama");
        copy.cut("model.safetensors", 3000);
        CHECK(contains(copy.load(), "model.safetensors"));
    }
    {
        const Copy copy("llama3");
        fs::remove(copy.folder / "model-00002-of-00003.safetensors");
        CHECK(contains(copy.load(), "model-00002-of-00003.safetensors"));
    }
    {
        const Copy copy("llama3");
        nlohmann::json index = nlohmann::json::parse(read_text(copy.folder / "model.safetensors.index.json"));
        index["weight_map"]["model.norm.weight"] = "../elsewhere.safetensors";
        copy.write("model.safetensors.index.json", index);
        CHECK(contains(copy.load(), "\"../elsewhere.safetensors\" for tensor model.norm.weight is not a file's name"));
    }
    const auto index = [](const char* text) {
        const Copy copy("llama3");
        copy.write_text("model.safetensors.index.json", text);
        return copy.load();
    };
    CHECK(contains(index("[1]"), "model.safetensors.index.json: it is not a JSON object"));
    CHECK(contains(index("7"), "model.safetensors.index.json: it is not a JSON object"));
    CHECK(contains(index("{"), "model.safetensors.index.json: [json.exception.parse_error"));
    CHECK(contains(index(R"({"a": {"weight_map": {"b": "c"}}})"), "it has no object weight_map"));
    CHECK(contains(index(R"({"a": [{"weight_map": {}}], "weight_map": "c"})"), "it has no object weight_map"));
    for (const char* value : {"1", "null", "[\"c\"]", "{\"c\": \"d\"}"}) {
        CHECK(contains(index((R"({"weight_map": {"b": )" + std::string(value) + "}}").c_str()),
                       "weight_map: b has no file's name"));
    }
    CHECK(contains(index(R"({"weight_map": {"a": "b"}, "weight_map": 3})"), "it has weight_map twice"));
    CHECK(contains(index(R"({"weight_map": {"a": "b"}, "weight_map": {}})"), "it has weight_map twice"));
    for (const char* name : {"..", ".", "", "a/b", "b\\u0000c"}) {
        CHECK(contains(index((R"({"weight_map": {"a": ")" + std::string(name) + "\"}}").c_str()),
                       "for tensor a is not a file's name"));
    }
    const auto with = [](const char* field, const nlohmann::json& value) {
        const Copy copy("llama");
        nlohmann::json config = good_config("llama");
        config[field] = value;
        copy.write("config.json", config);
        return copy.load();
    };
    CHECK(contains(with("intermediate_size", 48),
                   "tensor model.layers.0.mlp.up_proj.weight: is (40, 24), by config.json it "
                   "should be (48, 24)"));
    CHECK(contains(with("num_hidden_layers", 3), "tensor model.layers.2"));
    CHECK(contains(with("num_hidden_layers", 1), "is not a parameter that llama with this config.json has"));
    CHECK(contains(with("attention_bias", true), "bias: is missing"));
}

TEST_CASE("decoder: a model that was not read is refused by whatever takes it") {
    const Checkpoint checkpoint(kModels / "llama");
    const TemporaryFolder folder;
    const fs::path out = folder.path() / "out";
    const char* said = "DecoderModel: the model is empty: read_decoder() gives one";
    CHECK(error_of([&] { load_decoder(device(), checkpoint, DecoderModel()); }) == said);
    CHECK(error_of([&] { save_decoder(out, checkpoint, {}, {}); }) == said);
    Graph g;
    g.state("q.lora_A.weight", {1, 2});
    g.state("q.lora_B.weight", {2, 1});
    save_adapter(folder.path() / "adapter", device().make_state({&g}), {.rank = 1, .targets = {"q"}}, "base");
    CHECK(error_of([&] { merge_adapter(out, checkpoint, {}, Adapter(folder.path() / "adapter")); }) == said);
    CHECK(!fs::exists(out));
    CHECK(error_of([&] { DecoderPlan(device(), checkpoint, {}); }) == said);
    CHECK(error_of([&] { Decoder(device(), Weights(), DecoderModel()); }) == said);
    CHECK(error_of([&] { FineTuner(device(), checkpoint, DecoderModel(), {}); }) == said);
    Graph logits;
    const Value tokens = logits.input("tokens", {1, 4}, DType::i32);
    CHECK(error_of([&] { decoder_logits(tokens, DecoderModel()); }) == said);
    CHECK(error_of([&] { TextEncoder(device(), Weights(), TextEncoderModel()); }) ==
          "TextEncoderModel: the model is empty: read_text_encoder() gives one");
}

TEST_CASE("decoder: a last matrix beside tied embeddings is their copy, or refused by name") {
    const auto with_last = [](const std::string& name, const std::string& table, const auto& change) {
        const Copy copy(name.c_str());
        const Checkpoint original(kModels / name);
        HostTensor last = *original.find(table);
        std::vector<std::byte> bytes(last.data.begin(), last.data.end());
        last.name = "lm_head.weight";
        change(last, bytes);
        last.data = bytes;
        copy.add(last);
        return copy.load();
    };
    using Bytes = std::vector<std::byte>;
    const std::pair<const char*, const char*> tables[] = {
        {"gpt2", "transformer.wte.weight"}, {"gpt2_bare", "wte.weight"}, {"gemma2", "model.embed_tokens.weight"}};
    for (const auto& tied : tables) {
        const std::string name = tied.first, table = tied.second;
        CAPTURE(name);
        const std::string differs = "tensor lm_head.weight: differs from " + table;
        CHECK(with_last(name, table, [](HostTensor&, Bytes&) {}) == "");
        CHECK(contains(with_last(name, table, [](HostTensor&, Bytes& b) { b.back() ^= std::byte{1}; }), differs));
        CHECK(contains(with_last(name, table, [](HostTensor& t, Bytes&) { std::swap(t.shape[0], t.shape[1]); }),
                       differs));
        CHECK(contains(with_last(name, table, [](HostTensor& t, Bytes&) { t.dtype = DType::i32; }), differs));
    }
    // a plan that was made for another checkpoint
    const Copy equal("gemma2"), unlike("gemma2");
    const Checkpoint gemma2(kModels / "gemma2");
    for (const Copy* copy : {&equal, &unlike}) {
        HostTensor last = *gemma2.find("model.embed_tokens.weight");
        Bytes bytes(last.data.begin(), last.data.end());
        bytes.back() ^= std::byte{copy == &unlike ? std::uint8_t{1} : std::uint8_t{0}};
        last.name = "lm_head.weight";
        last.data = bytes;
        copy->add(last);
    }
    const Checkpoint planned(equal.folder), other(unlike.folder);
    const DecoderPlan plan(device(), planned, read_decoder(planned), {.max_tokens = 8});
    CHECK(error_of([&] { load_decoder(device(), planned, plan); }) == "");
    CHECK(contains(error_of([&] { load_decoder(device(), other, plan); }), "tensor lm_head.weight: differs from "));
    for (const std::string name : {"llama", "mistral", "qwen2", "phi3", "olmo2"}) {
        CAPTURE(name);
        const Copy copy(name.c_str());
        CHECK(copy.load() == "");
        nlohmann::json config = good_config(name.c_str());
        config["tie_word_embeddings"] = true;
        copy.write("config.json", config);
        CHECK(contains(copy.load(), "tensor lm_head.weight: differs from model.embed_tokens.weight, to which"));
    }
}
