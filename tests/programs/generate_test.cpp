// SPDX-License-Identifier: Apache-2.0
// What samples/generate promises of its options.
#include <doctest/doctest.h>
#include <signal.h>

#include "sample_run.h"

namespace {

const std::string kSpell = VKFORMER_SOURCE_DIR "/samples/generate";
const std::string kNoTokenizer = VKFORMER_SOURCE_DIR "/tests/decoders/llama3";

Outcome generate(std::vector<std::string> words) {
    words.insert(words.begin(), GENERATE_PROGRAM);
    return run(words);
}

/// Runs generate with its streams elsewhere, such as "2>/dev/null".
Outcome generate_to(const std::string& streams, std::vector<std::string> words) {
    words.insert(words.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" " + streams, GENERATE_PROGRAM});
    return run(words);
}

std::string answer(const std::vector<std::string>& words) { return generate_to("2>/dev/null", words).output; }

void check_refused(const std::vector<std::string>& words, const std::string& part) {
    check_refused(generate(words), "generate", part);
}

}  // namespace

TEST_CASE("generate: --dry-run prints the plan on the standard output, with or without a prompt") {
    for (const std::string& model : {kSpell, kNoTokenizer}) {
        const Outcome o = generate_to("2>/dev/null", {model, "--dry-run"});
        CHECK(o.code == 0);
        CHECK_MESSAGE(o.output.starts_with("memory: "), o.output);
    }
    const Copy copy(kSpell);
    copy.write("texts.txt", "7 is seven.\n");
    const std::string saved = (copy.folder / "saved").string(), texts = (copy.folder / "texts.txt").string();
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"--save", saved}, {"--check"}, {"--accuracy", texts}}) {
        std::vector<std::string> all{"--dry-run"};
        all.insert(all.end(), words.begin(), words.end());
        const Outcome o = generate(all);
        CHECK(o.code == 1);
        CHECK_MESSAGE(has(o.output, "--dry-run: goes with an answer"), o.output);
    }
    CHECK_FALSE(std::filesystem::exists(saved));
    check_refused({kNoTokenizer}, "has neither tokenizer.json nor tokenizer.model");
    check_refused({kNoTokenizer}, "--ids");
}

TEST_CASE("generate: ids are for an answer, and lines of texts end as Windows ends them too") {
    const Copy copy(kSpell);
    const std::string texts = (copy.folder / "texts.txt").string();
    copy.write("texts.txt", "7 is seven.\r\n8 is eight.\r\n");
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"--ids", "3", "--check"}, {"--ids", "3", "--accuracy", texts}}) {
        const Outcome o = generate(words);
        CHECK(o.code == 1);
        CHECK_MESSAGE(has(o.output, "--ids: goes with an answer"), o.output);
    }
    const std::string judged = answer({"--accuracy", texts});
    CHECK_MESSAGE(has(judged, "2 texts, 8 tokens judged"), judged);
}

TEST_CASE("generate: a --profile that cannot be written is told before anything is computed") {
    const Outcome o = generate({"-n", "1", "--profile", "/nowhere/trace.json"});
    CHECK(o.code == 1);
    CHECK_MESSAGE(o.output == "generate: /nowhere/trace.json: cannot be written\n", o.output);
}

TEST_CASE("generate: --profile has dispatches that ran, of an answer of one token too") {
    for (const char* tokens : {"1", "3"}) {
        const Copy copy(kSpell);
        const std::string trace = (copy.folder / "trace.txt").string();
        CHECK(generate({"-n", tokens, "--profile", trace}).code == 0);
        const std::string text = copy.read("trace.txt");
        CHECK(has(text, "\"kernel\":\"embedding\""));
        CHECK_FALSE(has(text, "\"kernel\":\"\""));
    }
}

TEST_CASE("generate: --arithmetic says which products stay in fp32, and why") {
    const Outcome o = generate_to("2>&1 >/dev/null", {"-n", "2", "--weights", "fp16", "--arithmetic", "int8"});
    CHECK(o.code == 0);
    CHECK_MESSAGE(has(o.output, "arithmetic: fp32; "), o.output);
    CHECK_MESSAGE(has(o.output, " products in fp32: "), o.output);
    CHECK_FALSE(has(generate_to("2>&1 >/dev/null", {"-n", "2"}).output, "arithmetic: "));
}

TEST_CASE("generate: --stop ends ids too, where there is a tokenizer") {
    const std::vector<std::string> ids{kSpell, "--ids", "20 30 31 32", "--ignore-eos", "-n", "40"};
    const std::string whole = answer(ids);
    std::vector<std::string> words = ids;
    words.insert(words.end(), {"--stop", "hundred"});
    const std::string cut = answer(words);
    CHECK(cut.size() > 1);
    CHECK(cut.size() < whole.size());
    CHECK(whole.starts_with(cut.substr(0, cut.size() - 1)));
    check_refused({kNoTokenizer, "--ids", "1 2", "--stop", "x"}, "--stop");
}

TEST_CASE("generate: options of draws draw, or are refused") {
    const std::vector<std::string> often{"--top-k", "50", "--prompt", "hundred", "-n", "40", "--ignore-eos"};
    const auto with_seed = [&](const char* seed) {
        std::vector<std::string> words = often;
        words.insert(words.end(), {"--seed", seed});
        return answer(words);
    };
    CHECK(with_seed("1") == with_seed("1"));
    CHECK(with_seed("1") != with_seed("2"));
    CHECK(answer({"--top-p", "1", "--prompt", "hundred", "-n", "40", "--ignore-eos"}) == answer(often));
    const auto wrong = [](const std::vector<std::string>& words, const std::string& part) {
        const Outcome o = generate(words);
        CHECK(o.code == 1);
        CHECK_MESSAGE(has(o.output, part), o.output);
    };
    wrong({"--seed", "3"}, "--seed: nothing is drawn");
    wrong({"--seed", "-1", "--top-k", "3"}, "--seed: ");
    wrong({"--seed", "18446744073709551616", "--top-k", "3"}, "--seed: ");
    wrong({"--temperature", "nan"}, "--temperature: nan is no finite number");
    wrong({"--limit", "nan"}, "--limit: nan is no finite number");
    CHECK(with_seed("18446744073709551615") != with_seed("1"));
}

TEST_CASE("generate: an output that cannot be written is an error") {
    REQUIRE(std::filesystem::exists("/dev/full"));
    for (const std::vector<std::string>& words : {std::vector<std::string>{"-n", "2"}, {"--dry-run"}}) {
        const Outcome o = generate_to("2>&1 >/dev/full", words);
        CHECK(o.code == 1);
        CHECK_MESSAGE(has(o.output, "generate: standard output: cannot be written"), o.output);
    }
}

TEST_CASE("generate: an interrupt ends the reading of a long prompt") {
    const Copy copy(kSpell);
    std::string config = copy.read("config.json");
    const std::size_t at = config.find("\"max_position_embeddings\": ");
    REQUIRE(at != std::string::npos);
    config.replace(config.find(':', at), config.find(',', at) - config.find(':', at), ": 65536");
    copy.write("config.json", config);
    std::string ids;
    for (int i = 0; i < 40000; ++i) {
        ids += "5 ";
    }
    Process p({GENERATE_PROGRAM, copy.folder.string(), "--ids", ids, "--chunk", "8", "-n", "1"});
    CHECK(p.wait_for("kernels after", kSeconds));
    p.interrupt();
    const Outcome o = p.wait(kSeconds);
    CHECK_FALSE(o.hung);
    CHECK(o.code == 130);
    CHECK_MESSAGE(!has(o.output, "prompt:"), o.output);  // which would tell its speed
}

TEST_CASE("generate: an interrupt ends the judging of texts") {
    Process p({GENERATE_PROGRAM, "--accuracy", kSpell + "/numbers.tsv"});
    CHECK(p.wait_for("fp32     fp32", kSeconds));
    p.interrupt();
    const Outcome o = p.wait(kSeconds);
    CHECK_FALSE(o.hung);
    CHECK(o.signal == SIGINT);
    CHECK_MESSAGE(!has(o.output, "int4"), o.output);
}

TEST_CASE("generate: the id that begins a text is put where transformers puts it") {
    const auto after = [](const std::string& settings, const std::string& post, const std::vector<std::string>& more) {
        const Copy copy(kSpell);
        if (!settings.empty()) {
            copy.write("tokenizer_config.json", settings);
        }
        std::string tokenizer = copy.read("tokenizer.json");
        const std::string none = "\"post_processor\": null";
        REQUIRE(has(tokenizer, none));
        if (!post.empty()) {
            tokenizer.replace(tokenizer.find(none), none.size(), "\"post_processor\": " + post);
        }
        copy.write("tokenizer.json", tokenizer);
        std::vector<std::string> words{copy.folder.string(), "--prompt", "12", "-n", "1"};
        words.insert(words.end(), more.begin(), more.end());
        const Outcome o = generate(words);
        const std::size_t at = o.output.find("prompt: ");
        return at == std::string::npos ? o.output : o.output.substr(at + 8, 1);
    };
    const std::string puts = R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1],
        "tokens": ["<s>"]}}})";
    CHECK(after("", "", {}) == "3");
    CHECK(after("", "", {"--no-bos"}) == "2");
    CHECK(after(R"({"tokenizer_class": "GPT2Tokenizer"})", "", {}) == "2");
    CHECK(after(R"({"tokenizer_class": "GPT2Tokenizer"})", puts, {}) == "3");
    CHECK(after(R"({"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": true})", "", {}) == "2");
    CHECK(after(R"({"tokenizer_class": "LlamaTokenizer"})", "", {}) == "2");
    CHECK(after(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})", "", {}) == "3");
    CHECK(after(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false})", puts, {}) == "2");
    CHECK(after(R"({"tokenizer_class": "GPT2Tokenizer"})", puts, {"--no-bos"}) == "2");
    CHECK(has(after("{bad", "", {}), "tokenizer_config.json: it is not a JSON object"));
}
