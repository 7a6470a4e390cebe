// SPDX-License-Identifier: Apache-2.0
// samples/finetune by its command line.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sample_run.h"

namespace fs = std::filesystem;

namespace {

const std::string kTiny = VKFORMER_SOURCE_DIR "/tests/decoders/llama";

/// A folder with texts to learn from.
struct Lessons {
    fs::path folder = fs::temp_directory_path() / ("vkformer-finetune-" + std::to_string(std::random_device{}()));

    explicit Lessons(const std::string& ids) {
        fs::create_directories(folder);
        std::ofstream(folder / "ids.txt") << ids;
    }
    ~Lessons() { fs::remove_all(folder); }
    Lessons(const Lessons&) = delete;
    Lessons& operator=(const Lessons&) = delete;

    std::string at(const std::string& name) const { return (folder / name).string(); }
    Outcome tune(std::vector<std::string> more, const std::string& model = kTiny) const {
        std::vector<std::string> words{FINETUNE_PROGRAM, model, "--ids", at("ids.txt")};
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    }
    nlohmann::json json(const std::string& name) const {
        std::ifstream in(folder / name);
        return nlohmann::json::parse(in);
    }
};

const std::string kIds = "5 6 7 8 9 10 11\n12 13\n\n14 15 16 17\n";

}  // namespace

TEST_CASE("finetune: a run that stops and goes on loses what one without a stop does") {
    const Lessons lessons(kIds);
    const Outcome whole = lessons.tune({"--steps", "6", "--schedule", "cosine", "--json", lessons.at("whole.json")});
    CHECK_MESSAGE(whole.code == 0, whole.output);
    const nlohmann::json all = lessons.json("whole.json");
    REQUIRE(all.at("losses").size() == 6);
    REQUIRE(all.at("grad_norms").size() == 6);
    CHECK(all.at("tokens_per_second").get<double>() > 0);
    CHECK(all.at("losses")[5].get<double>() < all.at("losses")[0].get<double>());

    // a schedule is over all steps, so that the run is stopped, not shortened
    const std::string save = lessons.at("out");
    Process stopped({FINETUNE_PROGRAM, kTiny, "--ids", lessons.at("ids.txt"), "--steps", "1000000", "--save", save});
    CHECK(stopped.wait_for("step 2 of", kSeconds));
    stopped.interrupt();
    const Outcome interrupted = stopped.wait(kSeconds);
    CHECK_MESSAGE(interrupted.code == 130, interrupted.output);
    CHECK(has(interrupted.output, "--resume goes on"));
    const Outcome on = lessons.tune({"--steps", "1", "--resume", save, "--save", save});
    CHECK_MESSAGE(on.code == 0, on.output);
    CHECK(has(on.output, "are taken already"));
    const Outcome answer = run({GENERATE_PROGRAM, save, "--ids", "5 6 7", "-n", "4"});
    CHECK_MESSAGE(answer.code == 0, answer.output);
}

TEST_CASE("finetune: adapters are trained beside packed weights, and generate takes them in") {
    const Lessons lessons(kIds);
    const std::string adapter = lessons.at("adapter"), merged = lessons.at("merged");
    const Outcome tuned = lessons.tune({"--steps", "3", "--lora", "2", "--lora-alpha", "4", "--lora-targets",
                                        "q_proj,v_proj", "--weights", "int8", "--save", adapter});
    CHECK_MESSAGE(tuned.code == 0, tuned.output);
    CHECK(fs::exists(fs::path(adapter) / "adapter_model.safetensors"));
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--save", merged}}) {
        std::vector<std::string> words{GENERATE_PROGRAM, kTiny, "--ids", "5 6 7", "-n", "4", "--adapter", adapter};
        words.insert(words.end(), more.begin(), more.end());
        const Outcome o = run(words);
        CHECK_MESSAGE(o.code == 0, o.output);
    }
    CHECK(fs::exists(fs::path(merged) / "model.safetensors"));

    const std::vector<std::string> on{"--steps",   "4",    "--lora",   "2",     "--lora-targets", "q_proj,v_proj",
                                      "--weights", "int8", "--resume", adapter, "--lora-alpha"};
    const auto with_alpha = [&](const char* alpha) {
        std::vector<std::string> words = on;
        words.emplace_back(alpha);
        return lessons.tune(words);
    };
    const Outcome goes_on = with_alpha("4");
    CHECK_MESSAGE(goes_on.code == 0, goes_on.output);
    check_refused(with_alpha("8"), "finetune", "adapter_config.json: lora_alpha is 4.0, which --lora-alpha must be");
}

TEST_CASE("finetune: what would be lost or learn nothing is refused, with its reason") {
    const Copy copy(kTiny);
    const Lessons lessons(kIds);
    const auto refused = [&](std::vector<std::string> words, const std::string& part,
                             const std::string& model = kTiny) {
        check_refused(lessons.tune(std::move(words), model), "finetune", part);
    };
    refused({"--save", copy.folder.string()}, "has the model that is fine-tuned", copy.folder.string());
    CHECK(fs::exists(copy.folder / "config.json"));
    refused({"--save", copy.folder.string()}, "which is not of fine-tuning");
    refused({"--lora", "2", "--lora-targets", "c_attn"}, "no linear layer fits \"c_attn\"");
    refused({"--resume", lessons.at("none")}, "checkpoint.safetensors");
    refused({"--json", lessons.at("none/report.json")}, "cannot be written");
    check_refused(Lessons("5 97\n").tune({}), "finetune", "line 1: \"97\" is not a token's id below 97");
    check_refused(Lessons("5\n").tune({}), "finetune", "line 1: has one token");
    check_refused(Lessons("\n\n").tune({}), "finetune", "has no text");
    const Lessons words("one two\n\xff\n");
    const std::string told = words.at("ids.txt") + ", line 2: tokenizer: byte 0 of the text is not UTF-8";
    check_refused(run({FINETUNE_PROGRAM, VKFORMER_SOURCE_DIR "/samples/generate", "--text", words.at("ids.txt")}),
                  "finetune", told);
    check_refused(run({GENERATE_PROGRAM, "--accuracy", words.at("ids.txt")}), "generate", told);
}

TEST_CASE("finetune: where a step fails and nothing can be saved, both are told") {
    const Lessons lessons(kIds);
    const std::string save = lessons.at("out");
    const Outcome first = lessons.tune({"--steps", "1", "--save", save});
    CHECK_MESSAGE(first.code == 0, first.output);
    fs::remove(fs::path(save) / "model.safetensors");
    fs::create_directory(fs::path(save) / "model.safetensors");
    const Outcome both = lessons.tune({"--steps", "50", "--lr", "1e30", "--save", save});
    check_refused(both, "finetune", "is not finite");
    CHECK_MESSAGE(has(both.output, "What was learned could not be saved: "), both.output);
}
