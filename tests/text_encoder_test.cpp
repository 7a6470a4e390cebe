// SPDX-License-Identifier: Apache-2.0
// Encoders of the BERT family against `transformers` (tests/make_encoder_cases.py).
#include "models/text_encoder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

namespace fs = std::filesystem;

const fs::path kEncoders = VKFORMER_SOURCE_DIR "/tests/encoders";

template <class T>
std::vector<T> values_of(const HostTensor& t) {
    std::vector<T> out(t.data.size() / sizeof(T));
    std::memcpy(out.data(), t.data.data(), t.data.size());
    return out;
}

struct EncodedTexts {
    Checkpoint checkpoint;
    TextEncoderModel model;
    Weights weights;
    std::vector<std::vector<std::int32_t>> texts;
    std::vector<float> hidden, embedding;
    std::size_t longest;

    explicit EncodedTexts(const fs::path& folder)
        : checkpoint(folder),
          model(read_text_encoder(checkpoint)),
          weights(load_text_encoder(device(), checkpoint, model)) {
        const Safetensors file(folder / "expected.safetensors");
        const auto ids = values_of<std::int32_t>(file.at("ids"));
        const auto lengths = values_of<std::int32_t>(file.at("lengths"));
        hidden = values_of<float>(file.at("hidden"));
        embedding = values_of<float>(file.at("embedding"));
        longest = ids.size() / lengths.size();
        for (std::size_t b = 0; b < lengths.size(); ++b) {
            const auto at = ids.begin() + static_cast<std::ptrdiff_t>(b * longest);
            texts.emplace_back(at, at + lengths[b]);
        }
    }
};

/// Gives the error in units of 1e-4 + 1e-4 |want|; NaN is worse than any.
double error_of_one(float got, float want) {
    const double error = std::abs(double(got) - want) / (1e-4 + 1e-4 * std::abs(double(want)));
    return std::isnan(error) ? INFINITY : error;
}

double worst_embedding(const EncodedTexts& c, const std::vector<std::vector<float>>& got) {
    REQUIRE(got.size() == c.texts.size());
    double worst = 0;
    for (std::size_t i = 0; i < c.embedding.size(); ++i) {
        const std::size_t width = got[0].size();
        worst = std::max(worst, error_of_one(got[i / width][i % width], c.embedding[i]));
    }
    return worst;
}

}  // namespace

TEST_SUITE_BEGIN("text encoder");

TEST_CASE("text encoder: hidden states and embeddings are transformers', padded or alone") {
    int models = 0;
    for (const auto& entry : fs::directory_iterator(kEncoders)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const EncodedTexts c(entry.path());
        TextEncoder together(device(), c.weights, c.model, {.max_batch = 4});
        CHECK(worst_embedding(c, together.embed(c.texts)) <= 1.0);
        const std::vector<float> hidden = together.program().download("hidden");
        REQUIRE(hidden.size() == c.hidden.size());
        double worst = 0;
        const std::size_t width = hidden.size() / c.texts.size() / c.longest;
        for (std::size_t i = 0; i < hidden.size(); ++i) {
            const std::size_t row = i / width % c.longest;
            const bool padded = row >= c.texts[i / width / c.longest].size();
            worst = padded ? worst : std::max(worst, error_of_one(hidden[i], c.hidden[i]));
        }
        CHECK(worst <= 1.0);
        TextEncoder alone(device(), c.weights, c.model, {.max_batch = 1, .max_tokens = 20});
        CHECK(worst_embedding(c, alone.embed(c.texts)) <= 1.0);
        ++models;
    }
    CHECK(models == 4);
}

TEST_CASE("text encoder: padding leaves no trace of the row it has, whatever that holds") {
    const fs::path from = kEncoders / "bert";
    const TemporaryFolder folder;
    fs::copy_file(from / "config.json", folder.path() / "config.json");
    const Safetensors whole(from / "model.safetensors");
    std::vector<HostTensor> tensors(whole.tensors().begin(), whole.tensors().end());
    const auto table = std::find_if(tensors.begin(), tensors.end(), [](const HostTensor& t) {
        return t.name.ends_with("embeddings.word_embeddings.weight");
    });
    REQUIRE(table != tensors.end());
    std::vector<float> rows = values_of<float>(*table);
    std::fill_n(rows.begin(), table->shape[1], std::nanf(""));
    table->data = std::as_bytes(std::span(rows));
    save_safetensors(folder.path() / "model.safetensors", tensors, whole.metadata());
    const EncodedTexts good(from);
    const Checkpoint checkpoint(folder.path());
    TextEncoder together(device(), checkpoint, good.model, {.max_batch = 4});
    CHECK(worst_embedding(good, together.embed(good.texts)) <= 1.0);
    // a token of which nothing finite comes, in the last of five texts, of batches of four
    std::vector<std::vector<std::int32_t>> texts(5, {4, 5, 6});
    texts[4][1] = 0;
    CHECK(error_of([&] { together.embed(texts); }) == "TextEncoder: the vector of text 4 is not finite");
    texts.pop_back();
    CHECK(together.embed(texts).size() == 4);
}

TEST_CASE("text encoder: a folder of sentence-transformers says how a text's states become a vector") {
    const TemporaryFolder folder;
    fs::copy(kEncoders / "bert", folder.path(), fs::copy_options::recursive);
    fs::create_directory(folder.path() / "1_Pooling");
    const auto pooled = [&](const nlohmann::json& fields) {
        std::ofstream(folder.path() / "1_Pooling/config.json") << fields;
        return error_of([&] { read_text_encoder(Checkpoint(folder.path())); });
    };
    const auto modules = [&](const nlohmann::json& types) {
        nlohmann::json list = nlohmann::json::array();
        for (const auto& type : types) {
            list.push_back({{"idx", list.size()},
                            {"path", type == "Pooling" ? "1_Pooling" : ""},
                            {"type", "sentence_transformers.models." + type.get<std::string>()}});
        }
        std::ofstream(folder.path() / "modules.json") << list;
        return error_of([&] { read_text_encoder(Checkpoint(folder.path())); });
    };
    const nlohmann::json mean{{"word_embedding_dimension", 24}, {"pooling_mode_mean_tokens", true}};
    const nlohmann::json cls{{"word_embedding_dimension", 24},    {"pooling_mode_cls_token", true},
                             {"pooling_mode_mean_tokens", false}, {"pooling_mode_max_tokens", false},
                             {"pooling_mode_lasttoken", false},   {"include_prompt", true}};
    // whose file is not there
    CHECK(contains(modules({"Transformer", "Pooling", "Normalize"}), "1_Pooling"));
    CHECK(pooled(mean) == "");
    const EncodedTexts averaged(folder.path());
    TextEncoder usual(device(), averaged.weights, averaged.model, {.max_batch = 4});
    CHECK(worst_embedding(averaged, usual.embed(averaged.texts)) <= 1.0);
    for (const nlohmann::json& first : {cls, nlohmann::json{{"embedding_dimension", 24}, {"pooling_mode", "cls"}}}) {
        CHECK(pooled(first) == "");
        EncodedTexts c(folder.path());
        const std::size_t width = c.embedding.size() / c.texts.size();
        for (std::size_t b = 0; b < c.texts.size(); ++b) {
            const float* state = c.hidden.data() + b * c.longest * width;
            double squares = 0;
            for (std::size_t i = 0; i < width; ++i) {
                squares += double(state[i]) * state[i];
            }
            for (std::size_t i = 0; i < width; ++i) {
                c.embedding[b * width + i] = static_cast<float>(state[i] / std::sqrt(squares));
            }
        }
        TextEncoder together(device(), c.weights, c.model, {.max_batch = 4});
        CHECK(worst_embedding(c, together.embed(c.texts)) <= 1.0);
        TextEncoder alone(device(), c.checkpoint, c.model, {.max_batch = 1});
        CHECK(worst_embedding(c, alone.embed(c.texts)) <= 1.0);
    }

    CHECK(contains(pooled({{"pooling_mode", "cls"}, {"pooling_mode_mean_tokens", true}}), "pooling_mode_mean_tokens"));
    CHECK(contains(pooled({{"pooling_mode", "mean"}, {"pooling_mode_cls_token", true}}), "pooling_mode_cls_token"));
    CHECK(pooled({{"pooling_mode", "mean"}, {"pooling_mode_cls_token", false}}) == "");
    const auto with = [&](nlohmann::json fields, const char* name, const nlohmann::json& value) {
        fields[name] = value;
        return pooled(fields);
    };
    const std::string file = (folder.path() / "1_Pooling/config.json").string();
    CHECK(with(mean, "pooling_mode_max_tokens", true) == file + ": pooling_mode_max_tokens = true: is not supported");
    CHECK(contains(with(mean, "pooling_mode_lasttoken", true), "pooling_mode_lasttoken = true"));
    CHECK(contains(with(mean, "pooling_mode_cls_token", true), "pooling_mode_cls_token = true: is not supported"));
    CHECK(
        contains(with(mean, "pooling_mode_mean_tokens", false), "pooling_mode_mean_tokens = false: is not supported"));
    CHECK(contains(with(mean, "include_prompt", false), "include_prompt = false"));
    CHECK(contains(with(mean, "pooling_mode_attention", true), "pooling_mode_attention = true: is not known"));
    CHECK(contains(pooled({{"pooling_mode", "max"}}), "pooling_mode = \"max\": is not supported"));
    CHECK(pooled(mean) == "");
    CHECK(contains(modules({"Transformer", "Pooling", "Dense"}),
                   "modules.json: [2].type = \"sentence_transformers.models.Dense\": is not a module that is known"));
    std::ofstream(folder.path() / "modules.json") << R"([{"type": "models.Pooling", "path": "2_Pooling"}])";
    CHECK(contains(error_of([&] { read_text_encoder(Checkpoint(folder.path())); }), "[0].path = \"2_Pooling\""));
    std::ofstream(folder.path() / "modules.json") << "{}";
    CHECK(contains(error_of([&] { read_text_encoder(Checkpoint(folder.path())); }), "is not a list of modules"));
}

TEST_CASE("text encoder: a folder of sentence-transformers says how its texts are cut, and their case") {
    const TemporaryFolder folder;
    fs::copy(kEncoders / "bert", folder.path(), fs::copy_options::recursive);
    const auto facts = [&](const nlohmann::json& fields) {
        std::ofstream(folder.path() / "sentence_bert_config.json") << fields;
        return read_text_encoder(Checkpoint(folder.path())).facts();
    };
    const std::int64_t most = read_text_encoder(Checkpoint(folder.path())).facts().max_tokens;
    CHECK(read_text_encoder(Checkpoint(folder.path())).facts().cut_tokens == 0);
    CHECK(facts({{"max_seq_length", 4}, {"do_lower_case", false}}).cut_tokens == 4);
    CHECK_FALSE(facts({{"max_seq_length", 4}, {"do_lower_case", false}}).lower_case);
    CHECK(facts({{"max_seq_length", 4}, {"do_lower_case", true}}).lower_case);
    CHECK(facts({{"max_seq_length", 100'000}}).cut_tokens == most);
    CHECK(facts({{"max_seq_length", nullptr}}).cut_tokens == 0);
    CHECK(facts({{"max_seq_length", nullptr}, {"do_lower_case", true}}).cut_tokens == most);
    CHECK(facts({{"max_seq_length", 4}}).max_tokens == most);
    CHECK(contains(error_of([&] { facts({{"max_seq_length", 0}}); }), "sentence_bert_config.json: max_seq_length = 0"));
    CHECK(contains(error_of([&] { facts({{"do_lower_case", "yes"}}); }), "do_lower_case"));
    fs::remove(folder.path() / "sentence_bert_config.json");
    std::ofstream(folder.path() / "sentence_roberta_config.json") << R"({"max_seq_length": 5})";
    CHECK(read_text_encoder(Checkpoint(folder.path())).facts().cut_tokens == 5);
}

TEST_CASE("text encoder: files and fields of older checkpoints are read") {
    const EncodedTexts c(kEncoders / "bert");
    const TemporaryFolder folder;
    fs::copy(kEncoders / "bert", folder.path(), fs::copy_options::recursive);
    nlohmann::json config = nlohmann::json::parse(c.checkpoint.config());
    config.update({{"pooler_fc_size", 768},
                   {"pooler_num_attention_heads", 12},
                   {"pooler_num_fc_layers", 3},
                   {"pooler_size_per_head", 128},
                   {"pooler_type", "first_token_transform"},
                   {"output_past", true}});
    std::ofstream(folder.path() / "config.json") << config;
    std::vector<HostTensor> tensors;
    int renamed = 0;
    for (const std::string& name : c.checkpoint.names()) {
        tensors.push_back(*c.checkpoint.find(name));
        const std::size_t dot = name.rfind('.');
        if (name.substr(0, dot).ends_with("LayerNorm")) {
            tensors.back().name = name.substr(0, dot) + (name.ends_with(".bias") ? ".beta" : ".gamma");
            ++renamed;
        }
    }
    CHECK(renamed > 4);
    save_safetensors(folder.path() / "model.safetensors", tensors);
    const EncodedTexts older(folder.path());
    TextEncoder encoder(device(), older.weights, older.model, {.max_batch = 4});
    CHECK(worst_embedding(older, encoder.embed(older.texts)) <= 1.0);
}

TEST_CASE("text encoder: what does not fit the device is refused before it is allocated") {
    const EncodedTexts c(kEncoders / "bert");
    std::uint64_t& there = Insides::core(device()).capabilities.device_memory;
    const std::uint64_t kept = there;
    there = c.weights.bytes() + 1000;
    const std::string encoder = error_of([&] { TextEncoder(device(), c.weights, c.model); });
    there = 1000;
    const std::string weights = error_of([&] { load_text_encoder(device(), c.checkpoint, c.model); });
    there = kept;
    CHECK_MESSAGE(contains(encoder, "TextEncoder: needs "), encoder);
    CHECK_MESSAGE(contains(encoder, "scratch"), encoder);
    CHECK_MESSAGE(contains(weights, "TextEncoder: needs " + std::to_string(c.weights.bytes()) + " bytes (weights " +
                                        std::to_string(c.weights.bytes()) + " bytes"),
                  weights);
}

TEST_CASE("text encoder: what cannot be is refused by name") {
    const EncodedTexts c(kEncoders / "bert");
    TextEncoder encoder(device(), c.weights, c.model, {.max_tokens = 9});
    using Texts = std::vector<std::vector<std::int32_t>>;
    CHECK(contains(error_of([&] { encoder.embed(Texts{{}}); }), "a text of 0 tokens; 1 to 9"));
    CHECK(contains(error_of([&] { encoder.embed(Texts{std::vector<std::int32_t>(10, 5)}); }), "a text of 10 tokens"));
    CHECK(contains(error_of([&] { encoder.embed(Texts{{4}, {83}}); }), "token 83 is outside the vocabulary of 83"));
    CHECK(encoder.embed(Texts{}).empty());
    CHECK(contains(error_of([&] { load_text_encoder(device(), c.checkpoint, {}); }), "Text"));
    CHECK(encoder.embed(Texts{{4, 0, 5}}).size() == 1);
    const EncodedTexts roberta(kEncoders / "roberta");
    TextEncoder counting(device(), roberta.weights, roberta.model, {.max_tokens = 9});
    CHECK(contains(error_of([&] { counting.embed(Texts{{4, 5}, {4, 1, 5}}); }), "the padding's token 1"));
    CHECK(counting.embed(Texts{{4, 0, 5}}).size() == 1);
    CHECK(contains(error_of([&] { TextEncoder(device(), c.weights, c.model, {.max_tokens = 33}); }), "takes 32"));
    const TemporaryFolder folder;
    const auto with = [&](const char* field, const nlohmann::json& value) {
        nlohmann::json config = nlohmann::json::parse(c.checkpoint.config());
        config[field] = value;
        fs::copy(kEncoders / "bert", folder.path(), fs::copy_options::overwrite_existing | fs::copy_options::recursive);
        std::ofstream(folder.path() / "config.json") << config;
        return error_of([&] { EncodedTexts other(folder.path()); });
    };
    CHECK(with("vocab_size", 83) == "");
    CHECK(contains(with("model_type", "t5"), "model_type = \"t5\": is not an encoder that is known"));
    CHECK(contains(with("position_embedding_type", "relative_key"), "position_embedding_type"));
    CHECK(contains(with("embedding_size", 12), "embedding_size = 12: is not known"));
    CHECK(contains(with("num_attention_heads", 5), "the heads do not divide the width"));
    CHECK(contains(with("type_vocab_size", 3), "token_type_embeddings.weight: is (2, 24)"));
}
