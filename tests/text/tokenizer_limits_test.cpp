// SPDX-License-Identifier: Apache-2.0
// What tokenizers refuse, and what keeps them from taking memory and time without end.
#include <doctest/doctest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/text/tokenizer_cases.h"
#include "text/chat_template.h"
#include "text/pattern.h"
#include "text/unicode.h"

using namespace vkf;
using namespace vkf::test;
using nlohmann::json;

TEST_SUITE_BEGIN("tokenizer");

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
    const auto pattern_refusal = [&](const char* pattern) {
        return with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}});
    };
    for (const char* pattern :
         {"[a&&b]", "[a[bc]]", "\\h", "a{1,2}+", "(", "(?m:.)", "\\u12", "a{1}?", "x(?i)a|b", "(?:x(?i)a|b)c",
          "(a)(?i)b|c", "\\Qa\\E", "a\\E", "\\C-a", "\\x", "\\xc3\\xa9", "(?i)ss", "(?i:a(FI))", "(?i)[\u00DF]"}) {
        CAPTURE(pattern);
        CHECK(pattern_refusal(pattern).find("the pattern " + std::string(pattern)) != std::string::npos);
    }
    for (const char* property : {"\\p{Lu}", "\\P{Ll}", "\\p{^Lt}", "\\p{Uppercase}", "\\p{ lower }"}) {
        CAPTURE(property);
        const std::string why = " has " + std::string(property) + " in a class where case is ignored";
        for (const std::string& pattern :
             {"(?i)[" + std::string(property) + "]", "(?i:[^a" + std::string(property) + "])"}) {
            CHECK(pattern_refusal(pattern.c_str()).find("the pattern " + pattern + why) != std::string::npos);
        }
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

TEST_CASE("tokenizer: a match may take some steps for each byte of a long text") {
    // as Llama 3's
    const text::Finder find = text::regex_finder("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|[^\\s]+");
    const std::vector<text::Part> parts = find(std::string(11'000'000, ' ') + "x");
    REQUIRE(parts.size() == 3);
    CHECK(parts[0].end == 10'999'999);
    CHECK(parts[2].end == 11'000'001);
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

TEST_CASE("tokenizer: a damaged table of replacements is refused") {
    json file = read_json(VKFORMER_SOURCE_DIR "/tests/text/cases/unigram_xlmr.json").at("tokenizer");
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

TEST_SUITE_END();
