// SPDX-License-Identifier: Apache-2.0
// Tokenizers against Hugging Face's, case by case (tests/text/make_cases.py), and what is refused.
#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/base/error.h"
#include "text/chat_template.h"
#include "text/pattern.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

using namespace vkf;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

json read(const fs::path& path) {
    std::ifstream file(path);
    return json::parse(file);
}

/// Says what differs first in one case; empty: nothing.
std::string mismatch(const Tokenizer& tokenizer, const json& c) {
    const std::string text = c[0];
    const std::vector<std::int32_t> ids = c[1];
    const std::vector<std::int32_t> plain = c[2].is_null() ? ids : c[2].get<std::vector<std::int32_t>>();
    const std::string decoded = c[3].is_null() ? text : c[3].get<std::string>();
    const std::string raw = c[4].is_null() ? decoded : c[4].get<std::string>();
    const auto differs = [&](const char* what, const json& got, const json& want) {
        return got == want ? std::string()
                           : json(text).dump() + " " + what + " " + got.dump() + ", want " + want.dump();
    };
    for (const std::string& found :
         {differs("ids", tokenizer.encode(text, true, true), ids),
          differs("plain", tokenizer.encode(text, false, true), plain),
          differs("decoded", tokenizer.decode(ids), decoded), differs("raw", tokenizer.decode(ids, false), raw)}) {
        if (!found.empty()) {
            return found;
        }
    }
    return {};
}

/// The text as it comes token by token, each part well-formed.
std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    TokenStream stream(tokenizer);
    std::string text;
    for (const std::int32_t id : ids) {
        const std::string part = stream.push(id);
        CHECK(text::malformed_at(part) == std::string::npos);
        text += part;
    }
    const std::string last = stream.finish();
    CHECK(text::malformed_at(last) == std::string::npos);
    return text + last;
}

/// A folder of its own, gone at the end.
struct Folder {
    fs::path path = fs::temp_directory_path() / ("vkformer-" + std::to_string(std::random_device{}()));
    Folder() { fs::create_directories(path); }
    ~Folder() { fs::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
};

std::string refusal(const std::string& text) {
    try {
        Tokenizer::parse(text, "tokenizer.json");
        return "accepted";
    } catch (const Error& error) {
        return error.what();
    }
}

json small_bpe() {
    return {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
}

}  // namespace

TEST_SUITE_BEGIN("tokenizer");

TEST_CASE("tokenizer: a text is cut only where that is asked for") {
    json file = small_bpe();
    file["truncation"] = {{"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    CHECK(tokenizer.encode("abaab") == std::vector<std::int32_t>{2, 0, 2});
    CHECK(tokenizer.encode("abaab", true, true) == std::vector<std::int32_t>{2, 0});
}

TEST_CASE("tokenizer: every case of the reference") {
    // another folder of make_cases.py's
    const char* elsewhere = std::getenv("VKFORMER_TOKENIZER_CASES");
    const fs::path folder = elsewhere != nullptr ? elsewhere : VKFORMER_SOURCE_DIR "/tests/text/cases";
    int files = 0, cases = 0, wrong = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const json file = read(entry.path());
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
    for (const json& small : read(VKFORMER_SOURCE_DIR "/tests/text/small_cases.json")) {
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

#ifdef VKFORMER_SENTENCEPIECE

TEST_CASE("tokenizer: every case of SentencePiece models, whole and token by token") {
    // another folder of make_sentencepiece_cases.py's
    const char* elsewhere = std::getenv("VKFORMER_SENTENCEPIECE_CASES");
    const fs::path folder = elsewhere != nullptr ? elsewhere : VKFORMER_SOURCE_DIR "/tests/text/sentencepiece";
    int models = 0, cases = 0, wrong = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const Tokenizer tokenizer(entry.path());
        ++models;
        for (const json& c : read(entry.path() / "cases.json")) {
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

#else

TEST_CASE("tokenizer: a SentencePiece model is refused by a build that cannot read it") {
    CHECK_THROWS_WITH(Tokenizer(VKFORMER_SOURCE_DIR "/tests/text/sentencepiece/llama"),
                      doctest::Contains("this build has no libsentencepiece"));
}

#endif

TEST_CASE("tokenizer: a damaged table of replacements is refused") {
    json file = read(VKFORMER_SOURCE_DIR "/tests/text/cases/unigram_xlmr.json").at("tokenizer");
    std::string& table = file["normalizer"]["normalizers"][0]["precompiled_charsmap"].get_ref<std::string&>();
    const std::string whole = table;
    std::mt19937 random(1);
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
        table = whole;
        if (i % 3 == 0) {
            table.resize(random() % table.size());
        } else {
            table[random() % table.size()] = "ABCabc012+/="[random() % 12];
        }
        try {
            Tokenizer::parse(file.dump(), "tokenizer.json").encode("the of \xEF\xBC\x91 e\xCC\x81 thousand");
        } catch (const Error& error) {
            ++refused;
            CHECK(std::string(error.what()).find("precompiled_charsmap") != std::string::npos);
        }
    }
    CHECK(refused > 100);
}

TEST_CASE("tokenizer: text that comes token by token is the text") {
    for (const char* name : {"gpt2", "llama2", "gemma", "mistral", "bert_uncased", "unigram_xlmr", "unigram_bytes"}) {
        const json file = read(fs::path(VKFORMER_SOURCE_DIR "/tests/text/cases") / (std::string(name) + ".json"));
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

TEST_CASE("tokenizer: numbers that are no ids or lengths are refused, and no step is taken of nothing") {
    const auto with = [](const char* part, const json& value) {
        json file = small_bpe();
        file[part] = value;
        return refusal(file.dump());
    };
    const auto added = [&](const json& id) { return with("added_tokens", {{{"id", id}, {"content", "<s>"}}}); };
    CHECK(added(7) == "accepted");
    CHECK(added(3.5e64).find("a whole number was expected, of another size than 3.5e+64") != std::string::npos);
    CHECK(added(std::int64_t{1} << 32).find("of another size than 4294967296") != std::string::npos);
    CHECK(added(2147483647).find("the id 2147483647") != std::string::npos);
    CHECK(added(-1).find("the id -1") != std::string::npos);
    CHECK(added("7").find("there is string") != std::string::npos);
    CHECK(with("truncation", {{"max_length", 1e300}}).find("a whole number was expected") != std::string::npos);
    const auto strip = [&](const char* content, const json& start) {
        return with("decoder", {{"type", "Strip"}, {"content", content}, {"start", start}, {"stop", 0}});
    };
    CHECK(strip(" ", 1) == "accepted");
    CHECK(strip("", std::uint64_t{1} << 63).find("Strip of nothing is not supported") != std::string::npos);
    // What the post-processor puts around a text counts as a token, too.
    json file = small_bpe();
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {{{"SpecialToken", {{"id", "S"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                              {"special_tokens", {{"S", {{"ids", {900}}}}}}};
    CHECK(vkf::Tokenizer::parse(file.dump(), "x").size() == 901);
}

TEST_CASE("tokenizer: what should be a list and is none is refused by name") {
    for (const json& value : {json(5), json::object(), json("x"), json(true)}) {
        json file = small_bpe();
        file["added_tokens"] = value;
        CHECK(refusal(file.dump()).find("its added_tokens are") != std::string::npos);
        file = small_bpe();
        file["model"]["merges"] = value;
        CHECK(refusal(file.dump()).find("its merges are") != std::string::npos);
    }
    json file = small_bpe();
    file["added_tokens"] = nullptr;
    CHECK(refusal(file.dump()) == "accepted");
}

TEST_CASE("tokenizer: what is not known or contradicts itself is refused by name") {
    const auto with = [](const char* part, const json& value) {
        json file = small_bpe();
        file[part] = value;
        return refusal(file.dump());
    };
    CHECK(refusal(small_bpe().dump()) == "accepted");
    CHECK(refusal("{").starts_with("tokenizer.json: "));
    CHECK(refusal("{}").starts_with("tokenizer.json: "));
    CHECK(with("normalizer", {{"type", "Other"}}).find("normalizer Other is not supported") != std::string::npos);
    CHECK(with("pre_tokenizer", {{"type", "UnicodeScripts"}}).find("UnicodeScripts") != std::string::npos);
    CHECK(with("post_processor", {{"type", "Other"}}).find("post-processor Other") != std::string::npos);
    CHECK(with("decoder", {{"type", "CTC"}}).find("decoder CTC") != std::string::npos);
    CHECK(with("model", {{"type", "Other"}}).find("model Other") != std::string::npos);
    CHECK(with("added_tokens", {{{"id", 7}, {"content", "a"}}}).find("\"a\"") != std::string::npos);
    for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "model"}) {
        CAPTURE(part);
        CHECK(with(part, 5).find("its " + std::string(part) + " cannot be read: ") != std::string::npos);
    }
    CHECK(with("added_tokens", {{{"id", 7}, {"content", 5}}}).find("its added_tokens cannot be read: ") !=
          std::string::npos);
    json deep = {{"type", "Lowercase"}};
    for (int i = 0; i < 100; ++i) {
        deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
    }
    CHECK(with("normalizer", deep).find("a Sequence inside more than 32 others") != std::string::npos);
    json file = small_bpe();
    file["model"]["merges"] = {"a c"};
    CHECK(refusal(file.dump()).find("\"c\" is not in the vocabulary") != std::string::npos);
    file["model"]["merges"] = {"a b c"};
    CHECK(refusal(file.dump()).find("is not two tokens") != std::string::npos);
    file = small_bpe();
    file["model"]["dropout"] = 0.1;
    CHECK(refusal(file.dump()).find("dropout") != std::string::npos);
    file = small_bpe();
    file["model"]["vocab"]["c"] = 2;
    CHECK(refusal(file.dump()).find("two tokens have the id 2") != std::string::npos);
    for (const char* pattern :
         {"[a&&b]", "[a[bc]]", "\\h", "a{1,2}+", "(", "(?m:.)", "\\u12", "a{1}?", "x(?i)a|b", "(?:x(?i)a|b)c",
          "(a)(?i)b|c", "\\Qa\\E", "a\\E", "\\C-a", "\\x", "\\xc3\\xa9", "(?i)ss", "(?i:a(FI))", "(?i)[\u00DF]"}) {
        CAPTURE(pattern);
        CHECK(with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}})
                  .find("the pattern " + std::string(pattern)) != std::string::npos);
    }
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
          "ss(?i:a)fi", "(?i)a(?-i:ss)", "(?i:'s|'t|'re|'ve|'m|'ll|'d)"}) {
        same(pattern, pattern);
    }
}

TEST_CASE("tokenizer: text that is not UTF-8 is refused, and what is no character when decoding becomes U+FFFD") {
    const Tokenizer tokenizer = Tokenizer::parse(small_bpe().dump(), "tokenizer.json");
    for (const char* text : {"a\xFF", "a\xC3", "a\xED\xA0\x80", "a\xC0\x80", "a\xF4\x90\x80\x80"}) {
        CHECK_THROWS_WITH_AS(tokenizer.encode(text), "tokenizer: byte 1 of the text is not UTF-8", Error);
    }
    CHECK(text::well_formed("a\xE2\x82z\xF0\x9F\x98\xFF\xED\xA0\x80") ==
          "a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    CHECK(tokenizer.encode("").empty());
    CHECK(tokenizer.decode(std::vector<std::int32_t>{2, 99, -1}) == "ab");
    CHECK(tokenizer.find("ab") == 2);
    CHECK_FALSE(tokenizer.find("abc"));
    CHECK(tokenizer.size() == 3);
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

TEST_CASE("tokenizer: a word of a million characters ends soon") {
    json file = small_bpe();
    file["model"]["vocab"]["abab"] = 3;
    file["model"]["merges"].push_back("ab ab");
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    std::string text;
    for (int i = 0; i < 500000; ++i) {
        text += "ab";
    }
    CHECK(tokenizer.encode(text) == std::vector<std::int32_t>(250000, 3));
}

TEST_CASE("tokenizer: long tokens that nearly fit do not make a long word slow") {
    constexpr std::size_t kBytes = 8'000;
    const auto seconds = [](const Tokenizer& tokenizer, const std::string& text, std::size_t tokens) {
        const std::clock_t begin = std::clock();  // of the processor, which other programs share
        CHECK(tokenizer.encode(text).size() == tokens);
        return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    };
    json file = {{"model", {{"type", "WordPiece"}, {"unk_token", "u"}, {"max_input_chars_per_word", 1'000'000}}}};
    file["model"]["vocab"] = {{"u", 0}, {"a", 1}, {"##a", 2}, {std::string(kBytes, 'b'), 3}};
    // Where each shorter part of the rest is tried, the time goes with the word's cube.
    CHECK(seconds(Tokenizer::parse(file.dump(), "x"), std::string(kBytes, 'a'), kBytes) < 20);
    file = small_bpe();
    for (std::size_t i = 0; i < 4000; ++i) {
        file["added_tokens"].push_back({{"id", 10 + i}, {"content", std::string(i, 'a') + "<"}});
    }
    CHECK(seconds(Tokenizer::parse(file.dump(), "x"), std::string(kBytes, 'a'), kBytes) < 20);
}

TEST_CASE("tokenizer: nested JSON is refused before anything copies or prints it") {
    for (const char open : {'[', '{'}) {
        std::string deep = R"({"added_tokens": )";
        for (int i = 0; i < 1'000'000; ++i) {
            deep += open == '[' ? "[" : "{\"a\":";
        }
        std::string said;
        try {
            Tokenizer::parse(deep, "tokenizer.json");
        } catch (const Error& error) {
            said = error.what();
        }
        CHECK(said.find("is nested deeper than 256 levels") != std::string::npos);
    }
    CHECK_THROWS_WITH_AS(Tokenizer::parse(R"({"a\"[[[": "[[[\\"})", "x"), doctest::Contains("model"), Error);
    const Folder made;
    std::string deep(100'000, '[');
    deep = R"({"added_tokens_decoder": {"5": )" + deep + std::string(100'000, ']') + "}}";
    std::ofstream(made.path / "tokenizer_config.json") << deep;
    CHECK_THROWS_WITH_AS(ChatTemplate(made.path), doctest::Contains("is nested deeper than 256 levels"), Error);
}

TEST_CASE("tokenizer: a match that would backtrack through gigabytes is an error") {
    const text::Finder find = text::regex_finder("(?:(a)|b)*c");
    CHECK(find("aabac").size() == 1);
    const std::string long_text = std::string(4'000'000, 'a') + "dc";
    CHECK_THROWS_WITH_AS(find(long_text), doctest::Contains("heap limit exceeded"), Error);
    CHECK_THROWS_WITH_AS(text::regex_finder(std::string(100'000, 'a')), doctest::Contains("the pattern"), Error);
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

TEST_CASE("tokenizer: steps that would multiply a text, or be taken thousands of times, are refused") {
    const auto said = [](const json& more, const std::string& text) {
        try {
            json file = small_bpe();
            file.update(more);
            Tokenizer::parse(file.dump(), "tokenizer.json").encode(text);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("encoded");
    };
    const auto sequence = [](const char* parts, const json& part, int count) {
        json all = json::array();
        for (int i = 0; i < count; ++i) {
            all.push_back(part);
        }
        return json{{"type", "Sequence"}, {parts, all}};
    };
    const json doubled = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
    CHECK(said({{"normalizer", sequence("normalizers", doubled, 16)}}, "a") == "encoded");
    CHECK(said({{"normalizer", sequence("normalizers", doubled, 60)}}, "a")
              .find("it makes 131072 bytes of a text of 1") != std::string::npos);
    // parts that grow little by themselves, and all together much
    json much = doubled;
    much["content"] = std::string(4000, 'b');
    const json spaces = {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Isolated"}};
    const json marks = {
        {"type", "Metaspace"}, {"replacement", std::string(4000, 'b')}, {"prepend_scheme", "never"}, {"split", false}};
    const json marked = {{"type", "Sequence"}, {"pretokenizers", {spaces, marks}}};
    const json added = {{{"id", 1}, {"content", "b"}, {"normalized", false}}};
    std::string parts;
    for (int i = 0; i < 1000; ++i) {
        parts += "ab";
    }
    CHECK(said({{"pre_tokenizer", marked}}, std::string(10, ' ')) == "encoded");
    CHECK(said({{"pre_tokenizer", marked}}, std::string(1000, ' ')).find(" bytes of a text of 1000") !=
          std::string::npos);
    CHECK(said({{"normalizer", much}, {"added_tokens", added}}, "abab") == "encoded");
    CHECK(said({{"normalizer", much}, {"added_tokens", added}}, parts).find(" bytes of a text of 2000") !=
          std::string::npos);
    json decoding = small_bpe();
    decoding["decoder"] = much;
    const Tokenizer shown = Tokenizer::parse(decoding.dump(), "tokenizer.json");
    CHECK(shown.decode(std::vector<std::int32_t>(10, 0)).size() == 40'000);
    CHECK_THROWS_WITH_AS(shown.decode(std::vector<std::int32_t>(1000, 0)), doctest::Contains("it makes"), Error);
    const json lower = {{"type", "Lowercase"}};
    CHECK(said({{"normalizer", sequence("normalizers", lower, 256)}}, "a") == "encoded");
    const std::string many = "a Sequence of more than 256 parts is not supported";
    CHECK(said({{"normalizer", sequence("normalizers", lower, 257)}}, "a").find(many) != std::string::npos);
    // of all sequences within one
    CHECK(said({{"normalizer", sequence("normalizers", sequence("normalizers", lower, 100), 3)}}, "a").find(many) !=
          std::string::npos);
    const json digits = {{"type", "Digits"}};
    CHECK(said({{"pre_tokenizer", sequence("pretokenizers", digits, 300)}}, "a").find(many) != std::string::npos);
    const json roberta = {{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"b", 1}}};
    CHECK(said({{"post_processor", sequence("processors", roberta, 300)}}, "a").find(many) != std::string::npos);
    json after = doubled;
    after["content"] = std::string(5000, 'b');
    CHECK(said({{"normalizer", after}}, "a").find("a text of 5000 bytes, more than 4096") != std::string::npos);
    json named = {{"type", "TemplateProcessing"},
                  {"special_tokens", {{"x", {{"ids", std::vector<int>(100, 1)}}}}},
                  {"single", json::array({{{"Sequence", {{"id", "A"}}}}})}};
    for (int i = 0; i < 11; ++i) {
        named["single"].push_back({{"SpecialToken", {{"id", "x"}}}});
    }
    CHECK(said({{"post_processor", named}}, "a").find("a template of more than 1000 tokens") != std::string::npos);
    const json long_pattern = {
        {"type", "Split"}, {"pattern", {{"Regex", std::string(20000, 'a')}}}, {"behavior", "Isolated"}};
    CHECK(said({{"pre_tokenizer", long_pattern}}, "a").find("the pattern of 20000 bytes") != std::string::npos);
}

TEST_CASE("tokenizer: what a file lists is counted before it is read, and read entry by entry") {
    const auto said = [](const std::string& text) {
        try {
            Tokenizer::parse(text, "tokenizer.json");
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("read");
    };
    const std::string vocab = R"("vocab":{"a":0,"b":1,"ab":2})", type = R"("type":"BPE",)";
    CHECK(said("{\"model\":{" + type + vocab + R"(,"merges":["a b"]}})") == "read");
    CHECK(said("{ \"model\" : { " + type + R"( "merges" : [ [ "a" , "b" ] ] , )" + vocab + " } } ") == "read");
    const std::string escaped = R"("voc\u0061b":{"a":0,"b":1,"ab":2})";
    CHECK(said("{\"mod\\u0065l\":{" + type + escaped + R"(,"\u006derges":["a b"]},"added\u005ftokens":[]})") == "read");
    CHECK(said("{\"model\":{" + type + vocab + "," + escaped + R"(,"merges":[]}})").find("there twice") !=
          std::string::npos);
    CHECK(said("{\"mod\\x65l\":{" + type + vocab + R"(,"merges":["a b"]}})") != "read");
    CHECK(said("{\"model\\\":{" + type + vocab + R"(,"merges":["a b"]}})") != "read");
    for (const char* merges :
         {"[\"ab\"]", "[[\"a\"]]", "[[\"a\",\"b\",\"a\"]]", "[{}]", "[[\"a\",\"b\",1]]", "[null]", "[[[\"a\"]]]",
          "[\"a b\"", "[\"a b\",]", "[\"a b\" \"a b\"]", "\"a b\"", "{\"a b\":1}"}) {
        CAPTURE(merges);
        CHECK(said("{\"model\":{" + type + vocab + ",\"merges\":" + merges + "}}") != "read");
    }
    for (const char* ids : {"{\"a\":0.5}", "{\"a\":\"b\"}", "{\"a\":[1]}", "{\"a\":{}}", "[\"a\"]", "{\"a\":0,\"a\":1}",
                            "{\"a\":0", "{}}"}) {
        CAPTURE(ids);
        CHECK(said("{\"model\":{" + type + R"("merges":[],"vocab":)" + ids + "}}") != "read");
    }
    CHECK(said("{\"model\":{" + type + vocab + "," + vocab + R"(,"merges":[]}})").find("there twice") !=
          std::string::npos);
    const std::string good = "{\"model\":{" + type + vocab + R"(,"merges":[]},"added_tokens":)";
    CHECK(said(good + "[]}") == "read");
    CHECK(said(good + R"([{"id":3,"content":"c"} , {"id":4,"content":"]}"}]})") == "read");
    for (const char* added :
         {"{}", "[1]", "[{} {}]", "[{}", "[{\"id\":3,\"content\":\"c\"},]", "[{\"id\":3,\"content\":\"c\"]"}) {
        CAPTURE(std::string(added));
        CHECK(said(good + added + "}") != "read");
    }
    std::string large = "{\"model\":{" + type + vocab + ",\"merges\":[";
    for (int i = 0; i < 2'200'000; ++i) {
        large += "\"\",";
    }
    CHECK(said(large + "\"\"]}}").find("MiB, of which at most 64 are given") != std::string::npos);
    CHECK(said(R"({"version":)" + std::string(2000, '1') + "}").find("a number of more than 1000 digits") !=
          std::string::npos);
    CHECK(said(R"({"version":")" + std::string(5 << 20, '1') + "\"}").find("a text of more than") != std::string::npos);
}

TEST_CASE("tokenizer: of added tokens the longest is taken, however many begin alike, and spaces are sought once") {
    json file = small_bpe();
    for (int i = 0; i < 3000; ++i) {
        file["added_tokens"].push_back({{"id", 10 + i}, {"content", "<" + std::to_string(i) + ">"}, {"special", true}});
    }
    file["added_tokens"].push_back({{"id", 5000}, {"content", "<1>>"}, {"special", true}});
    file["added_tokens"].push_back(
        {{"id", 5001}, {"content", "#"}, {"special", true}, {"lstrip", true}, {"rstrip", true}});
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "tokenizer.json");
    CHECK(tokenizer.encode("<12>a<1>><2999><3000>") == std::vector<std::int32_t>{22, 0, 5000, 3009});
    CHECK(tokenizer.encode("a  #  b") == std::vector<std::int32_t>{0, 5001, 1});
    std::string text;
    for (int i = 0; i < 200'000; ++i) {
        text += " #";
    }
    CHECK(tokenizer.encode(text) == std::vector<std::int32_t>(200'000, 5001));
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

#ifdef VKFORMER_SENTENCEPIECE

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

#endif
