// SPDX-License-Identifier: Apache-2.0
// Tokenizers against Hugging Face's, case by case (tests/text/make_cases.py).
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/text/tokenizer_cases.h"
#include "text/pattern.h"

using namespace vkf;
using namespace vkf::test;
using nlohmann::json;

namespace fs = std::filesystem;

TEST_SUITE_BEGIN("tokenizer");

TEST_CASE("tokenizer: a text is cut only where that is asked for") {
    json file = small_bpe();
    file["truncation"] = {{"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    CHECK(tokenizer.encode("abaab") == std::vector<std::int32_t>{2, 0, 2});
    CHECK(tokenizer.encode("abaab", true, true) == std::vector<std::int32_t>{2, 0});
}

TEST_CASE("tokenizer: a text is cut to a number of ids with those around it, whatever the file says") {
    json file = small_bpe();
    file["truncation"] = {{"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "S"}}}}, {{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "E"}}}}}},
        {"special_tokens", {{"S", {{"ids", {8}}}}, {"E", {{"ids", {9}}}}}}};
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    CHECK(tokenizer.encode("abaab", true, true) == std::vector<std::int32_t>{8, 2, 9});
    CHECK(tokenizer.encode_within("abaab", 4) == std::vector<std::int32_t>{8, 2, 0, 9});
    CHECK(tokenizer.encode_within("abaab", 9) == std::vector<std::int32_t>{8, 2, 0, 2, 9});
    CHECK(tokenizer.encode_within("abaab", 0) == std::vector<std::int32_t>{8, 9});
    CHECK(tokenizer.encode_within("AbA", 9, true) == std::vector<std::int32_t>{8, 2, 0, 9});
    CHECK(tokenizer.encode_within("AbA", 9) == std::vector<std::int32_t>{8, 1, 9});
    CHECK_THROWS_WITH_AS(tokenizer.encode_within("a", -1), doctest::Contains("-1 is negative"), Error);
    CHECK_THROWS_WITH_AS(tokenizer.encode_within("A\xff", 9, true), doctest::Contains("byte 1 of the text"), Error);
}

TEST_CASE("tokenizer: every case of the reference") {
    // another folder of make_cases.py's
    const char* elsewhere = std::getenv("VKFORMER_TOKENIZER_CASES");
    const fs::path folder = elsewhere != nullptr ? elsewhere : VKFORMER_SOURCE_DIR "/tests/text/cases";
    int files = 0, cases = 0, wrong = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const json file = read_json(entry.path());
        const Tokenizer tokenizer = Tokenizer::parse(file.at("tokenizer").dump(), entry.path().filename().string());
        ++files;
        int wrong_here = 0;
        for (const json& c : file.at("cases")) {
            ++cases;
            if (const std::string found = mismatch(tokenizer, c); !found.empty() && wrong_here++ < 3) {
                FAIL_CHECK(entry.path().filename().string() << ": " << found);
            }
        }
        wrong += wrong_here;
    }
    CHECK(files >= 20);
    CHECK(wrong == 0);
    MESSAGE(cases << " cases of " << files << " tokenizers, " << wrong << " wrong");
}

TEST_CASE("tokenizer: empty matches, shared space and texts cut to nothing are the reference's") {
    int cases = 0;
    for (const json& small : read_json(VKFORMER_SOURCE_DIR "/tests/text/small_cases.json")) {
        const Tokenizer tokenizer = Tokenizer::parse(small.at("tokenizer").dump(), "small_cases.json");
        for (const json& c : small.at("cases")) {
            ++cases;
            if (const std::string found = mismatch(tokenizer, c); !found.empty()) {
                FAIL_CHECK(small.at("tokenizer").dump() << ": " << found);
            }
        }
    }
    CHECK(cases >= 400);
}

TEST_CASE("tokenizer: text that comes token by token is the text") {
    for (const char* name : {"gpt2", "llama2", "gemma", "mistral", "bert_uncased", "unigram_xlmr", "unigram_bytes"}) {
        const json file = read_json(fs::path(VKFORMER_SOURCE_DIR "/tests/text/cases") / (std::string(name) + ".json"));
        const Tokenizer tokenizer = Tokenizer::parse(file.at("tokenizer").dump(), name);
        for (const json& c : file.at("cases")) {
            const std::vector<std::int32_t> ids = c[1];
            CHECK(streamed(tokenizer, ids) == tokenizer.decode(ids));
        }
    }
}

TEST_CASE("tokenizer: bytes that undo a character which was given out leave the stream UTF-8") {
    json vocab = {{"x", 256}, {"\u2581a", 257}};
    for (int byte = 0; byte < 256; ++byte) {
        constexpr const char* kDigits = "0123456789ABCDEF";
        vocab[std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">"] = byte;
    }
    json file = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}, {"byte_fallback", true}}}};
    file["decoder"] = {{"type", "Sequence"},
                       {"decoders",
                        {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}},
                         {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    CHECK(streamed(tokenizer, {0xC3, 0xA9, 0xFF, 256}) == "\u00E9\uFFFDx");
    CHECK(streamed(tokenizer, {0xC3, 0xA9, 0xFF}) == "\u00E9\uFFFD");
    CHECK(streamed(tokenizer, {0x41, 0x42, 0xFF, 256}) == "AB\uFFFDx");
    CHECK(streamed(tokenizer, {0xC3, 0xA9, 0xE6, 0x97, 0xA5, 257}) == "\u00E9\u65E5 a");
    CHECK(streamed(tokenizer, {256, 0xE6, 0x97, 0xA5, 0x80, 257, 256}) == "x\u65E5\uFFFD ax");
    CHECK(streamed(tokenizer, std::vector<std::int32_t>(100, 0xFF)).size() == 300);
}

TEST_CASE("tokenizer: what Oniguruma writes otherwise is written as PCRE2 has it") {
    const auto same = [](const char* pattern, const char* expression) {
        CHECK(text::pcre2_expression(pattern) == expression);
    };
    same("a{,2}b{,}c{1}d{1,}?", "a{0,2}b{,}c{1}d{1,}?");
    same("\\v[\\v]\\x41\\x{e9}", "\\x0b[\\x0b]\\x41\\x{e9}");
    // options that reach as far in both, and pairs where case counts
    for (const char* pattern :
         {"(?i)a|b", "x|(?i)a|b", "(?:(?i)x)a|b", "(?<n>(?i)a|b)", "(?<=(?i)a|b)", "(?#x(?i)|)a|b", "(x(?i)a)|b",
          "ss(?i:a)fi", "(?i)a(?-i:ss)", "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?i)\\p{Lu}(?-i:[\\p{Lu}])[\\p{L}]"}) {
        same(pattern, pattern);
    }
}

TEST_CASE("tokenizer: a Unigram model without unk_id takes what its vocabulary has") {
    json file = {{"model", {{"type", "Unigram"}}}};
    file["model"]["vocab"] = json::parse(R"([["a", -1.0], ["b", -2.0], ["ab", -2.5]])");
    for (const bool null : {false, true}) {
        if (null) {
            file["model"]["unk_id"] = nullptr;
        }
        const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
        CHECK(tokenizer.encode("ab") == std::vector<std::int32_t>{2});
        CHECK_THROWS_WITH_AS(tokenizer.encode("axxb"),
                             "tokenizer: \"xx\" is not in the vocabulary, and there is no unk_id", Error);
    }
    file["model"]["unk_id"] = 9;
    CHECK(refusal(file.dump()).find("unk_id 9 is not in the vocabulary") != std::string::npos);
}

TEST_CASE("tokenizer: BPE without unk_token leaves out what its vocabulary lacks, as in `tokenizers`") {
    const Tokenizer tokenizer = Tokenizer::parse(small_bpe().dump(), "tokenizer.json");
    CHECK(tokenizer.encode("b\u00E9axb\u00E9") == std::vector<std::int32_t>{1, 2});
    CHECK(tokenizer.encode("\u00E9").empty());
}

TEST_CASE("tokenizer: a script in a pattern is what its characters are of, not what others borrow them for") {
    const auto matches = [](const std::string& pattern, const std::string& character) {
        return text::regex_finder(pattern)(character)[0].match;
    };
    // a comma and a lengthening of kana's, which are of no script by themselves, and an ideograph
    const std::string comma = "\u3001", lengthening = "\u30FC", ideograph = "\u6F22", kana = "\u3042";
    for (const char* script : {"Han", "Hiragana", "han", "^Latin"}) {
        CAPTURE(script);
        const std::string name = std::string("{") + script + "}", other = "{^" + std::string(script) + "}";
        const bool out = script[0] == '^';
        for (const std::string& shared : {comma, lengthening}) {
            CHECK(matches("\\p" + name, shared) == out);
            CHECK(matches("[\\p" + name + "]", shared) == out);
            CHECK(matches("\\P" + name, shared) != out);
            if (!out) {
                CHECK(matches("\\p" + other, shared));
            }
        }
    }
    CHECK(matches("\\p{Han}+", ideograph));
    CHECK(matches("\\p{Hiragana}", kana));
    CHECK_FALSE(matches("\\p{^Han}", ideograph));
    CHECK(matches("\\p{Common}", comma));
    CHECK(text::pcre2_expression("\\p{L}\\p{^Lu}\\PN\\p{Alphabetic}\\x{41}") ==
          "\\p{L}\\p{^Lu}\\PN\\p{Alphabetic}\\x{41}");
}

TEST_CASE("tokenizer: an added token in the space that another takes along is found, as in `tokenizers`") {
    json file = small_bpe();
    file["model"]["vocab"][" "] = 3;
    file["added_tokens"] = {{{"id", 4}, {"content", "<x>"}, {"rstrip", true}}, {{"id", 5}, {"content", "\n"}}};
    using Ids = std::vector<std::int32_t>;
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    CHECK(tokenizer.encode("<x>  \n  b") == Ids{4, 5, 3, 3, 1});
    CHECK(tokenizer.encode("<x>\n\nb") == Ids{4, 5, 5, 1});
    CHECK(tokenizer.encode("<x>  b") == Ids{4, 1});
    file["added_tokens"][1] = {{"id", 5}, {"content", "<y>"}, {"lstrip", true}, {"rstrip", true}};
    const Tokenizer both = Tokenizer::parse(file.dump(), "tokenizer.json");
    CHECK(both.encode("<x>  <y>  a<y> b") == Ids{4, 5, 0, 5, 1});
    file["added_tokens"][1] = {{"id", 5}, {"content", "\n"}, {"rstrip", true}};
    CHECK(Tokenizer::parse(file.dump(), "tokenizer.json").encode(std::string(200'000, '\n')) == Ids(200'000, 5));
}

TEST_CASE("tokenizer: tokens are special by what they show") {
    json file = small_bpe();
    file["model"]["vocab"]["<s>"] = 3;
    file["normalizer"] = {{"type", "Lowercase"}};
    file["added_tokens"] = {{{"id", 3}, {"content", "<s>"}, {"special", true}},
                            {{"id", 4}, {"content", "<S>"}, {"normalized", true}},
                            {{"id", 5}, {"content", "<T>"}, {"normalized", true}, {"special", true}}};
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    const std::vector<std::int32_t> ids{0, 3, 4, 5, 1};
    CHECK(tokenizer.decode(ids) == "a <t> b");
    CHECK(tokenizer.decode(ids, false) == "a <s> <s> <t> b");
}

TEST_CASE("tokenizer: a stream that shows nothing keeps nothing, and broken bytes are shown at last") {
    json file = small_bpe();
    file["model"]["vocab"]["<0xFF>"] = 3;
    file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
    file["added_tokens"] = {{{"id", 4}, {"content", "<s>"}, {"special", true}}};
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    std::vector<std::int32_t> ids(50'000, 4);
    ids.insert(ids.end(), 50'000, 99);  // which no token has
    ids.insert(ids.begin(), 0);
    ids.push_back(1);
    CHECK(streamed(tokenizer, ids) == "ab");
    ids.assign(20'000, 3);
    ids.push_back(0);
    CHECK(streamed(tokenizer, ids) == tokenizer.decode(ids));
    TokenStream stream(tokenizer);
    std::string shown;
    for (int i = 0; i < 200; ++i) {
        shown += stream.push(3);
    }
    CHECK(shown.size() > 300);
}

TEST_CASE("tokenizer: a first word is one whose first character the text begins with, as in `tokenizers`") {
    json file = small_bpe();
    file["model"]["vocab"].update({{"_", 3}, {"c", 4}});
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
    const auto begins = [&](const json& normalizer, const std::string& text) {
        file["normalizer"] = normalizer;
        return Tokenizer::parse(file.dump(), "tokenizer.json").encode(text).at(0) == 3;
    };
    const auto replace = [](const char* wanted, const char* by) {
        return json{{"type", "Replace"}, {"pattern", {{"String", wanted}}}, {"content", by}};
    };
    const json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
    const json prepend = {{"type", "Prepend"}, {"prepend", "b"}};
    const json after_strip = {{"type", "Sequence"}, {"normalizers", {strip, prepend}}};
    CHECK(begins(nullptr, "a"));
    CHECK(begins(strip, "a "));
    CHECK_FALSE(begins(strip, "  a"));
    CHECK(begins(after_strip, "a"));
    CHECK_FALSE(begins(after_strip, " a"));
    CHECK(begins(replace("c", "b"), "ca"));
    CHECK_FALSE(begins(replace("c", ""), "ca"));
    CHECK_FALSE(begins(replace("cc", "b"), "cca"));
    CHECK(begins(replace("cc", "b"), "acc"));
    CHECK_FALSE(begins({{"type", "StripAccents"}},
                       "\xCC\x81"
                       "a"));
    CHECK_FALSE(begins({{"type", "Nmt"}},
                       "\x01"
                       "a"));
    CHECK_FALSE(begins({{"type", "BertNormalizer"}},
                       "\x01"
                       "a"));
    CHECK_FALSE(begins({{"type", "BertNormalizer"}},
                       "\xCC\x81"
                       "a"));
    CHECK(begins({{"type", "BertNormalizer"}}, "A"));
}

TEST_SUITE_END();
