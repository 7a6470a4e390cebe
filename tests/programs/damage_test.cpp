// SPDX-License-Identifier: Apache-2.0
// The samples with files that are cut or damaged, with wrong arguments, interrupted, and two at
// once: a clear error and 1, or an answer; never a crash or a hang.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "sample_run.h"

namespace {

namespace fs = std::filesystem;

/// A folder that `generate --save` writes, gone at the end of the program.
class SavedModel {
public:
    SavedModel() {
        Process({GENERATE_PROGRAM, VKFORMER_SOURCE_DIR "/tests/decoders/llama", "--weights", "int4", "--save", path()})
            .wait(kSeconds);
    }
    ~SavedModel() {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }
    SavedModel(const SavedModel&) = delete;
    SavedModel& operator=(const SavedModel&) = delete;
    std::string path() const { return folder_.string(); }

private:
    fs::path folder_ = fs::temp_directory_path() / ("vkformer-saved-" + std::to_string(std::random_device{}()));
};

struct Sample {
    const char* name;
    const char* program;
    std::string model;
    std::vector<std::string> files;
    std::function<std::vector<std::string>(const std::string& folder)> arguments;
};

const std::vector<Sample>& samples() {
    static const SavedModel saved;
    static const std::vector<Sample> all{
        {"generate",
         GENERATE_PROGRAM,
         VKFORMER_SOURCE_DIR "/samples/generate",
         {"config.json", "tokenizer.json", "model.safetensors", "generation_config.json"},
         [](const std::string& f) {
             return std::vector<std::string>{f, "--prompt", "1234567 is", "-n", "3"};
         }},
        {"generate",
         GENERATE_PROGRAM,
         VKFORMER_SOURCE_DIR "/tests/decoders/llama3",
         {"model.safetensors.index.json", "model-00002-of-00003.safetensors"},
         [](const std::string& f) {
             return std::vector<std::string>{f, "--ids", "1 2 3", "-n", "3"};
         }},
        {"generate",
         GENERATE_PROGRAM,
         saved.path(),
         {"model.safetensors"},
         [](const std::string& f) {
             return std::vector<std::string>{f, "--ids", "1 2 3", "-n", "3"};
         }},
        {"embed_text",
         EMBED_TEXT_PROGRAM,
         VKFORMER_SOURCE_DIR "/tests/text/bert",
         {"config.json", "tokenizer.json", "model.safetensors"},
         [](const std::string& f) {
             return std::vector<std::string>{f, "the hundred", "and thousand of café"};
         }},
        {"dates",
         DATES_PROGRAM,
         VKFORMER_SOURCE_DIR "/samples/dates",
         {"config.json", "model.safetensors"},
         [](const std::string& f) {
             return std::vector<std::string>{"--model", f, "--picture", f + "/picture.svg", "31.12.1987"};
         }}};
    return all;
}

std::vector<std::string> command(const Sample& s, const std::string& folder) {
    std::vector<std::string> all{s.program};
    for (std::string& a : s.arguments(folder)) {
        all.push_back(std::move(a));
    }
    return all;
}

/// One of the ways in which a file may be wrong.
std::string damaged(std::string bytes, int way, std::mt19937& random) {
    // heads decide more
    const std::size_t near = way % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 3000);
    const std::size_t at = random() % near;
    switch (way / 2 % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes[at] = "0123456789\"{}[],:-"[random() % 18]; break;
        case 2: bytes.erase(at, 1 + random() % 40); break;
        default: bytes.insert(at, bytes.substr(random() % near, 1 + random() % 40)); break;
    }
    return bytes;
}

}  // namespace

TEST_CASE("programs: a file that is cut is refused by name") {
    std::mt19937 random(1);
    for (const Sample& s : samples()) {
        const Copy copy(s.model);
        for (const std::string& file : s.files) {
            CAPTURE(file);
            const std::string whole = copy.read(file);
            REQUIRE(whole.size() > 100);
            for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{9}, random() % whole.size(),
                                           random() % whole.size(), whole.size() - 3}) {
                CAPTURE(size);
                copy.write(file, whole.substr(0, size));
                check_refused(run(command(s, copy.folder.string())), s.name, file);
            }
            fs::remove(copy.folder / file);
            if (file != "generation_config.json" && file != "model.safetensors.index.json") {
                check_refused(run(command(s, copy.folder.string())), s.name, file);
            }
            copy.write(file, whole);
        }
        CHECK(run(command(s, copy.folder.string())).code == 0);
    }
}

TEST_CASE("programs: a file that is damaged is refused, or read as another") {
    const char* more = std::getenv("VKFORMER_DAMAGES");  // of each file
    const int damages = more != nullptr ? std::atoi(more) : 16;
    std::mt19937 random(2);
    int refused = 0;
    for (const Sample& s : samples()) {
        const Copy copy(s.model);
        for (const std::string& file : s.files) {
            CAPTURE(file);
            const std::string whole = copy.read(file);
            for (int way = 0; way < damages; ++way) {
                CAPTURE(way);
                copy.write(file, damaged(whole, way, random));
                const Outcome o = run(command(s, copy.folder.string()));
                CAPTURE(o.output);
                check_sane(o, s.name);
                refused += o.code;
            }
            copy.write(file, whole);
        }
    }
    CHECK(refused > 40);
    MESSAGE(refused << " refused");
}

TEST_CASE("programs: wrong arguments are refused by name") {
    const std::string generate = GENERATE_PROGRAM;
    const auto refused = [&](std::vector<std::string> words, const std::string& part) {
        words.insert(words.begin(), generate);
        check_refused(run(words), "generate", part);
    };
    refused({"--prompt", ""}, "the prompt is empty");
    refused({"--ids", ""}, "the prompt has 0 tokens");
    refused({"--ids", "1 x"}, "\"x\" is not a token's id");
    refused({"--ids", "1 -2"}, "\"-2\" is not a token's id");
    refused({"--ids", "1 99999"}, "99999");
    refused({"--ids", "99999999999999999999"}, "is not a token's id");
    refused({"--prompt", "\xFF"}, "UTF-8");
    refused({"--chat", "--prompt", "x"}, "it has no chat template");
    refused({VKFORMER_SOURCE_DIR "/nowhere"}, "nowhere");
    refused({"--device", "no such device"}, "no such device");
    const std::string saved = samples()[2].model;
    refused({saved, "--ids", "1", "--weights", "int8"}, "is saved as int4; int8 was asked for");
    refused({"--weights", "int4", "--save", saved}, "has a model already");
    refused({"--weights", "int4", "--save", saved + "/config.json"}, "config.json: cannot make the folder");
    std::string longest;
    for (int i = 0; i < 500; ++i) {
        longest += "1 ";
    }
    refused({"--ids", longest}, "the prompt has 500 tokens; the model takes 1 to ");
    const auto no_number = [](const std::vector<std::string>& words, const std::string& part) {
        const Outcome o = run(words);
        CHECK(o.code == 1);
        CHECK_MESSAGE(has(o.output, part), o.output);
    };
    for (const std::string wrong : {" -1", "0x1ffffffffffffffff", "+1844", "18446744073709551616"}) {
        no_number({generate, "--top-k", "3", "--seed", wrong},
                  "--seed: " + wrong + " is no whole number between 0 and ");
    }
    no_number({generate, "--top-k", "3", "--seed="}, "--seed: ");
    no_number({generate, "-n", "4294967297"}, "--max-tokens: ");
    const std::string huge = "99999999999999999999";
    const std::vector<std::pair<std::string, std::string>> of_training = {
        {"--warmup", huge + " is no whole number"}, {"--micro-batch", huge + " is no whole number"},
        {"--clip", "1e39 is no finite number"},     {"--lr", "0x1p3 is no finite number"},
        {"--eps", "inf is no finite number"},       {"--clip", "1e-60 is no finite number, or too near to 0"},
    };
    for (const auto& [option, told] : of_training) {
        no_number({FINETUNE_PROGRAM, "nowhere", "--ids", "nowhere", option, told.substr(0, told.find(' '))},
                  option + ": " + told);
    }
    const Outcome no_date = run({DATES_PROGRAM, ""});
    CHECK(no_date.code == 1);
    CHECK_MESSAGE(has(no_date.output, "a date is empty"), no_date.output);
    check_refused(run({EMBED_TEXT_PROGRAM, VKFORMER_SOURCE_DIR "/tests/text/bert", "one"}), "embed_text", "two lines");
    check_refused(run({EMBED_TEXT_PROGRAM, VKFORMER_SOURCE_DIR "/tests/text/bert", "a", longest}), "embed_text", "64");
    check_refused(run({EMBED_TEXT_PROGRAM, VKFORMER_SOURCE_DIR "/tests/text/bert", "a", "\xFF"}), "embed_text",
                  "line 2 of the arguments: tokenizer: byte 0 of the text is not UTF-8");
}

TEST_CASE("programs: dates draws a picture only where one is asked for") {
    namespace fs = std::filesystem;
    const fs::path usual = "dates-attention.svg";
    const bool before = fs::exists(usual);
    const Outcome o = run({DATES_PROGRAM, "31.12.1987"});
    CHECK(o.code == 0);
    CHECK_MESSAGE(has(o.output, "1987-12-31"), o.output);
    CHECK_FALSE(has(o.output, "drawn"));
    CHECK(fs::exists(usual) == before);
}

TEST_CASE("programs: --help tells what holds where nothing is given") {
    const std::vector<std::pair<std::string, std::vector<std::string>>> all = {
        {GENERATE_PROGRAM, {"128", "256", "fp32", "50"}},
        {FINETUNE_PROGRAM, {"12", "0.001", "[0.9,0.999]", "constant", "[q_proj,v_proj]"}},
        {TRAIN_PROGRAM, {"1000", "500", "32"}},
        {DATES_PROGRAM, {"1"}},
        {EMBED_TEXT_PROGRAM, {"16", "3"}},
    };
    for (const auto& [program, defaults] : all) {
        const Outcome o = run({program, "--help"});
        CHECK(o.code == 0);
        for (const std::string& value : defaults) {
            // as older and newer versions of CLI11 write it
            const bool told = has(o.output, "=" + value) || has(o.output, "[" + value + "]");
            CHECK_MESSAGE(told, value << " in " << o.output);
        }
    }
    for (const std::string betas : {"0.8,0.9", "0.8,0.9,0.95"}) {
        const Outcome o = run({FINETUNE_PROGRAM, "nowhere", "--ids", "nowhere", "--betas", betas});
        CHECK_MESSAGE(has(o.output, "--betas") == (betas.size() > 7), o.output);
    }
}

TEST_CASE("programs: two at once answer as one does") {
    for (const Sample& s : samples()) {
        const std::vector<std::string> words = command(s, s.model);
        if (std::string(s.name) == "dates") {
            continue;  // writes its picture
        }
        Process one(words), other(words);
        const Outcome a = one.wait(kSeconds), b = other.wait(kSeconds);
        check_sane(a, s.name);
        CHECK(a.code == 0);
        CHECK(b.code == 0);
    }
}

TEST_CASE("programs: an interrupt ends generate soon, whenever it comes") {
    std::mt19937 random(3);
    const std::vector<std::string> words{GENERATE_PROGRAM, "--ignore-eos", "-n", "90"};
    const auto start = std::chrono::steady_clock::now();
    CHECK(run(words).code == 0);
    const auto whole =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
    for (int i = 0; i < 12; ++i) {
        Process p(words);
        const auto moment = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(whole + 1));
        CAPTURE(moment);
        std::this_thread::sleep_for(std::chrono::milliseconds(moment));
        p.interrupt();
        const Outcome o = p.wait(kSeconds);
        CAPTURE(o.output);
        CHECK_FALSE(o.hung);
        CHECK_FALSE(has(o.output, "Sanitizer"));
        // done before; ended in good order; or, before it listens, ended by the signal
        CHECK((o.code == 0 || o.code == 130 || o.signal == 2));
    }
}
