// SPDX-License-Identifier: Apache-2.0
// The token that begins a prompt, and the texts that end an answer.
#include "text/prompt.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "runtime/base/error.h"

using namespace vkf;

namespace {

namespace fs = std::filesystem;

/// Ids: <s> 0, a 1, b 2. With `puts`, the post-processor puts <s> before a text.
Tokenizer small(bool puts) {
    std::string json =
        R"({"added_tokens": [{"id": 0, "content": "<s>", "special": true}],
            "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2}, "merges": []}, "decoder": {"type": "Fuse"})";
    if (puts) {
        json += R"(, "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}})";
    }
    return Tokenizer::parse(json + "}", "small");
}

/// Gives what begin_of_text() says of a folder with this tokenizer_config.json (none where it is
/// empty).
BeginOfText asked(const std::string& config, bool json, bool trained) {
    const fs::path folder = fs::temp_directory_path() / ("vkformer-prompt-" + std::to_string(std::random_device{}()));
    fs::create_directories(folder);
    if (!config.empty()) {
        std::ofstream(folder / "tokenizer_config.json") << config;
    }
    if (json) {
        std::ofstream(folder / "tokenizer.json") << "{}";
    }
    struct Gone {
        fs::path folder;
        ~Gone() { fs::remove_all(folder); }
    } gone{folder};
    return begin_of_text(folder, trained);
}

/// The pieces after StopTexts, joined by "|".
std::string through(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
    StopTexts text(std::move(stops));
    std::string out;
    for (const std::string& piece : pieces) {
        out += text.push(piece) + "|";
    }
    return out + text.finish();
}

}  // namespace

TEST_SUITE_BEGIN("tokenizer");

TEST_CASE("prompt: a folder says whether a token begins texts, else the training does") {
    using enum BeginOfText;
    CHECK(asked("", true, true) == put);
    CHECK(asked("", true, false) == as_tokenizer);
    CHECK(asked("{}", true, true) == as_tokenizer);
    CHECK(asked("{}", false, true) == put);
    CHECK(asked(R"({"add_bos_token": false})", true, true) == leave_out);
    CHECK(asked(R"({"add_bos_token": true})", true, false) == put);
    CHECK(asked(R"({"add_bos_token": null})", true, true) == as_tokenizer);
    for (const char* kind : {"LlamaTokenizerFast", "CodeLlamaTokenizer", "GemmaTokenizer"}) {
        const std::string name = std::string(R"({"tokenizer_class": ")") + kind + '"';
        CHECK(asked(name + R"(, "add_bos_token": true})", true, false) == put);
    }
    const std::string other = R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true})";
    CHECK(asked(other, true, true) == as_tokenizer);
    CHECK(asked(other, false, false) == put);  // a SentencePiece model, which has no post-processor
    CHECK_THROWS_WITH_AS(asked("[]", true, true), doctest::Contains("is not a JSON object"), Error);
}

TEST_CASE("prompt: the token that begins a text stands before it once, or not") {
    using Ids = std::vector<std::int32_t>;
    using enum BeginOfText;
    for (const bool puts : {false, true}) {
        CAPTURE(puts);
        const Tokenizer tokenizer = small(puts);
        CHECK(encode_prompt(tokenizer, "ab", put, 0) == Ids{0, 1, 2});
        CHECK(encode_prompt(tokenizer, "ab", leave_out, 0) == Ids{1, 2});
        CHECK(encode_prompt(tokenizer, "ab", as_tokenizer, 0) == (puts ? Ids{0, 1, 2} : Ids{1, 2}));
        CHECK(encode_prompt(tokenizer, "ab", put, {}) == (puts ? Ids{0, 1, 2} : Ids{1, 2}));
        CHECK(encode_prompt(tokenizer, "<s>ab", leave_out, 0) == Ids{0, 1, 2});  // the text's own
        CHECK(encode_prompt(tokenizer, "", leave_out, 0) == Ids{});
        CHECK(encode_prompt(tokenizer, "<s>", leave_out, 0) == Ids{0});
        CHECK(encode_prompt(tokenizer, "<s><s>", leave_out, 0) == Ids{0, 0});
        CHECK(encode_prompt(tokenizer, "", put, 0) == Ids{0});
        CHECK(encode_prompt(tokenizer, "<s>ab", put, 0) == Ids{0, 1, 2});
        CHECK(encode_prompt(tokenizer, "<s>", put, 0) == Ids{0});
        CHECK(encode_prompt(tokenizer, "<s><s>b", put, 0) == Ids{0, 0, 2});
    }
}

TEST_CASE("prompt: a text ends at the first stop, whose beginning is held back") {
    CHECK(through({}, {"one", " two"}) == "one| two|");
    CHECK(through({""}, {"one"}) == "one|");
    CHECK(through({"END"}, {"abE", "N", "X", "E"}) == "ab||ENX||E");
    CHECK(through({"END"}, {"ab E", "ND cd", "ef"}) == "ab |||");
    CHECK(through({"END"}, {"EEND"}) == "E|");
    // the one that begins first
    CHECK(through({"long stop", "st"}, {"a long ", "stop"}) == "a ||");
    CHECK(through({"\n\n"}, {"a\n", "b\n", "\nc"}) == "a|\nb||");
    StopTexts text({"."});
    CHECK_FALSE(text.stopped());
    CHECK(text.push("a.b") == "a");
    CHECK(text.stopped());
    CHECK(text.push("c") == "");
    CHECK(text.finish() == "");
}

TEST_SUITE_END();
