// SPDX-License-Identifier: Apache-2.0
// SentencePiece models against Hugging Face's (make_sentencepiece_cases.py), and damaged ones.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/text/tokenizer_cases.h"

using namespace vkf;
using namespace vkf::test;
using nlohmann::json;

namespace fs = std::filesystem;

TEST_SUITE_BEGIN("tokenizer");

#ifdef VKFORMER_SENTENCEPIECE

TEST_CASE("tokenizer: every case of SentencePiece models, whole and token by token") {
    // another folder of make_sentencepiece_cases.py's
    const char* elsewhere = std::getenv("VKFORMER_SENTENCEPIECE_CASES");
    const fs::path folder = elsewhere != nullptr ? elsewhere : VKFORMER_SOURCE_DIR "/tests/text/sentencepiece";
    int models = 0, cases = 0, wrong = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const Tokenizer tokenizer(entry.path());
        ++models;
        for (const json& c : read_json(entry.path() / "cases.json")) {
            ++cases;
            const std::vector<std::int32_t> ids = c[1];
            std::string found = mismatch(tokenizer, c);
            found = found.empty() && streamed(tokenizer, ids) != tokenizer.decode(ids) ? "streamed otherwise" : found;
            if (!found.empty() && wrong++ < 10) {
                FAIL_CHECK(entry.path().filename().string() << ": " << found);
            }
        }
    }
    CHECK(models >= 5);
    CHECK(wrong == 0);
    MESSAGE(cases << " cases of " << models << " models, " << wrong << " wrong");
}

TEST_CASE("tokenizer: a SentencePiece model that is cut or damaged is refused, or read as another") {
    const fs::path folder = fs::path(VKFORMER_SOURCE_DIR) / "tests/text/sentencepiece";
    const Folder made;
    const fs::path& work = made.path;
    const fs::path file = work / "tokenizer.model";
    std::mt19937 random(1);
    int refused = 0;
    for (const char* name : {"unigram", "llama"}) {
        std::ifstream in(folder / name / "tokenizer.model", std::ios::binary);
        const std::string whole((std::istreambuf_iterator<char>(in)), {});
        for (int i = 0; i < 300; ++i) {
            std::string bytes = whole;
            if (i % 3 == 0) {
                bytes.resize(random() % bytes.size());
            } else {
                bytes[random() % bytes.size()] = static_cast<char>(random());
            }
            std::ofstream(file, std::ios::binary) << bytes;
            try {
                const Tokenizer tokenizer(work);
                tokenizer.decode(tokenizer.encode("the of \xEF\xBC\x91 e\xCC\x81 thousand"));
            } catch (const Error& error) {
                ++refused;
                CHECK(std::string(error.what()).find("tokenizer") != std::string::npos);
            }
        }
    }
    CHECK(refused > 200);
}

TEST_CASE("tokenizer: tags and numbers that protobuf cuts to 32 or 64 bits are refused") {
    const Folder made;
    std::ifstream in(VKFORMER_SOURCE_DIR "/tests/text/sentencepiece/llama/tokenizer.model", std::ios::binary);
    const std::string model{std::istreambuf_iterator<char>(in), {}};
    const auto with = [&](const std::string& more) {
        std::ofstream(made.path / "tokenizer.model", std::ios::binary) << model << more;
        try {
            const Tokenizer tokenizer(made.path);
            return std::string("accepted");
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    CHECK(with("") == "accepted");
    // a normalizer_spec with a table that leads out of itself, as it is; then its tag with a bit
    // more
    CHECK(with("\x1A\x0A" + std::string("\x12\x08\x04\0\0\0\xFF\xFF\xFF\x7F", 10)) != "accepted");
    CHECK(with("\x9A\x80\x80\x80\x10\x0A" + std::string("\x12\x08\x04\0\0\0\xFF\xFF\xFF\x7F", 10))
              .find("a field's tag of more than 32 bits") != std::string::npos);
    CHECK(with("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01").find("a number of more than 64 bits") !=
          std::string::npos);
}

TEST_CASE("tokenizer: what a SentencePiece folder says and cannot be is refused by name") {
    const Folder made;
    const fs::path& work = made.path;
    fs::copy_file(VKFORMER_SOURCE_DIR "/tests/text/sentencepiece/llama/tokenizer.model", work / "tokenizer.model");
    const auto with = [&](const std::string& config) {
        std::ofstream(work / "tokenizer_config.json") << config;
        try {
            const Tokenizer tokenizer(work);
            return std::string("accepted");
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    CHECK(with("{}") == "accepted");
    CHECK(with("{").find("tokenizer_config.json: ") != std::string::npos);
    CHECK(with("[]").find("tokenizer_config.json: it is not a JSON object") != std::string::npos);
    CHECK(with(R"({"tokenizer_class": "XLMRobertaTokenizer"})").find("tokenizer_class XLMRobertaTokenizer") !=
          std::string::npos);
    CHECK(with(R"({"eos_token": "<end>", "add_eos_token": true})").find("the token \"<end>\" is not in") !=
          std::string::npos);
    CHECK(with(R"({"added_tokens_decoder": {"x": {"content": "y"}}})").find("\"x\" is not a token's id") !=
          std::string::npos);
    CHECK(with(R"({"added_tokens_decoder": {"5": {"content": "<s>"}}})").find("contradicts the vocabulary") !=
          std::string::npos);
}

TEST_CASE("tokenizer: an id of tokenizer_config.json that no token can have is refused beside a SentencePiece model") {
    for (const char* id : {"2147483647", "-1", "2147483648"}) {
        CAPTURE(id);
        const Folder made;
        std::filesystem::copy_file(VKFORMER_SOURCE_DIR "/tests/text/sentencepiece/bare/tokenizer.model",
                                   made.path / "tokenizer.model");
        std::ofstream(made.path / "tokenizer_config.json")
            << R"({"added_tokens_decoder": {")" << id << R"(": {"content": "<x>"}}})";
        CHECK_THROWS_AS(Tokenizer{made.path}, Error);
    }
}

TEST_CASE("tokenizer: a piece for whose every byte libsentencepiece would call itself is refused") {
    const Folder made;
    std::ifstream in(VKFORMER_SOURCE_DIR "/tests/text/sentencepiece/bare/tokenizer.model", std::ios::binary);
    std::string model{std::istreambuf_iterator<char>(in), {}};
    // a ModelProto's piece: its text, of two bytes' length
    const auto with_piece = [&](std::size_t bytes) {
        const std::string length{static_cast<char>(bytes % 128 | 128), static_cast<char>(bytes / 128)};
        const std::size_t inner = bytes + 3;
        const std::string outer{static_cast<char>(inner % 128 | 128), static_cast<char>(inner / 128)};
        return model + "\n" + outer + "\n" + length + std::string(bytes, 'q');
    };
    const auto said = [&](std::size_t bytes) {
        std::ofstream(made.path / "tokenizer.model", std::ios::binary) << with_piece(bytes);
        try {
            Tokenizer{made.path};
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("read");
    };
    CHECK(said(1024) == "read");
    CHECK(said(1025).find("a piece of 1025 bytes, of which at most 1024 are read") != std::string::npos);
}

#else

TEST_CASE("tokenizer: a SentencePiece model is refused by a build that cannot read it") {
    CHECK_THROWS_WITH(Tokenizer(VKFORMER_SOURCE_DIR "/tests/text/sentencepiece/llama"),
                      doctest::Contains("this build has no libsentencepiece"));
}

#endif

TEST_SUITE_END();
