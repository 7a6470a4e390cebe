// SPDX-License-Identifier: Apache-2.0
// The training sample's configuration and its folder, by its command line.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "sample_run.h"

TEST_CASE("train: a configuration that the model cannot have is refused, naming the file, before anything is trained") {
    const Copy copy(VKFORMER_SOURCE_DIR "/samples/dates");
    const nlohmann::json good = nlohmann::json::parse(copy.read("config.json"));
    const std::string file = (copy.folder / "config.json").string(), out = (copy.folder / "out").string();
    const auto refused = [&](const std::string& config, const std::string& why) {
        CAPTURE(config.substr(0, 40));
        copy.write("config.json", config);
        const Outcome o = run({TRAIN_PROGRAM, "--config", file, "--out", out, "--steps", "1", "--evaluate", "0"});
        check_refused(o, "train", why);
        CHECK_MESSAGE(has(o.output, "config.json: "), o.output);
        CHECK_FALSE(std::filesystem::exists(out));
    };
    const auto with = [&](const char* name, const nlohmann::json& value) {
        nlohmann::json config = good;
        config[name] = value;
        return config.dump();
    };
    refused(with("activation", "gelu"), "knows only \"relu\"");
    refused(with("d_model", 64.9), "d_model is 64.9, not a whole number");
    refused(with("sos_token_id", 1000), "sos_token_id is 1000");
    refused(with("eos_token_id", -1), "eos_token_id is -1");
    refused(with("nhead", 3), "nhead does not divide d_model");
    refused(with("vocab", {"<pad>", "<sos>", "<eos>", "1", "1"}), "vocab holds \"1\" twice");
    refused("{", "parse error");
}

TEST_CASE("train: what a folder holds is not lost, and a run to go on from must be there") {
    const Copy copy(VKFORMER_SOURCE_DIR "/samples/dates");
    const std::string config = (copy.folder / "config.json").string(), out = (copy.folder / "out").string();
    const auto train = [&](const std::string& folder, const char* steps, bool resume = false) {
        std::vector<std::string> words{TRAIN_PROGRAM, "--config", config,       "--out", folder,     "--steps", steps,
                                       "--batch",     "2",        "--evaluate", "0",     "--unseen", "1"};
        if (resume) {
            words.emplace_back("--resume");
        }
        return run(words);
    };
    const std::string model = copy.read("model.safetensors");
    check_refused(train(copy.folder.string(), "1"), "train", "has model.safetensors, which is not of training");
    CHECK(copy.read("model.safetensors") == model);
    check_refused(train(out, "1", true), "train", "checkpoint.safetensors");
    CHECK_FALSE(std::filesystem::exists(out));

    const Outcome first = train(out, "1");
    CHECK_MESSAGE(first.code == 0, first.output);
    const std::string learned = copy.read("out/model.safetensors");
    check_refused(train(out, "1"), "train", "has checkpoint.safetensors of an earlier run; --resume goes on");
    CHECK(copy.read("out/model.safetensors") == learned);
    const Outcome on = train(out, "2", true);
    CHECK_MESSAGE(on.code == 0, on.output);
    CHECK(has(on.output, "goes on at step 1"));
    CHECK(copy.read("out/model.safetensors") != learned);
}

TEST_CASE("train: a step that fails loses nothing of those before, and what cannot be saved then is told too") {
    const Copy copy(VKFORMER_SOURCE_DIR "/samples/dates");
    const std::string config = (copy.folder / "config.json").string(), out = (copy.folder / "out").string();
    const auto train = [&](const char* steps, const char* rate, bool resume) {
        std::vector<std::string> words{TRAIN_PROGRAM, "--config", config, "--out",    out, "--steps",
                                       steps,         "--lr",     rate,   "--warmup", "0", "--evaluate",
                                       "0",           "--unseen", "1",    "--batch",  "2"};
        if (resume) {
            words.emplace_back("--resume");
        }
        return run(words);
    };
    check_refused(train("50", "1e30", false), "train", "is not finite");
    CHECK(std::filesystem::exists(out + "/checkpoint.safetensors"));
    CHECK(std::filesystem::exists(out + "/loss.svg"));
    std::filesystem::remove_all(out);

    const Outcome first = train("1", "1e-3", false);
    CHECK_MESSAGE(first.code == 0, first.output);
    std::filesystem::remove(out + "/model.safetensors");
    std::filesystem::create_directory(out + "/model.safetensors");
    const Outcome both = train("50", "1e30", true);
    check_refused(both, "train", "is not finite");
    CHECK_MESSAGE(has(both.output, "What was learned could not be saved: "), both.output);
}
