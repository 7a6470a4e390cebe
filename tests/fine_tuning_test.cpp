// SPDX-License-Identifier: Apache-2.0
// Training of decoders against PyTorch's (tests/make_training_cases.py), checkpoints.
#include "train/fine_tuner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/decoder_logits.h"
#include "models/decoder_parameters.h"
#include "ops/gradients.h"
#include "tests/fine_tuning_models.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// The worst error in units of 3e-4 |want| + 3e-5 of the largest |want|.
double worst_gradient_error(const std::vector<float>& got, const std::vector<float>& want) {
    REQUIRE(got.size() == want.size());
    double largest = 0, worst = 0;
    for (const float x : want) {
        largest = std::max(largest, std::abs(double(x)));
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::abs(double(got[i]) - want[i]) / (3e-5 * largest + 3e-4 * std::abs(double(want[i])));
        worst = !(error <= worst) ? error : worst;
    }
    return worst;
}

}  // namespace

TEST_SUITE_BEGIN("fine-tuning");

TEST_CASE("fine-tuning: every architecture's gradients are PyTorch's, parameter by parameter") {
    int models = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const TunedModel m(name.c_str());
        const ExpectedTraining expected(entry.path());
        Graph g;
        const Dim tokens = g.symbol("tokens", 23);
        const Value given = g.input("tokens", {2, tokens}, DType::i32),
                    wanted = g.input("labels", {2, tokens}, DType::i32);
        const Value loss = cross_entropy(decoder_logits(given, m.model), wanted);
        const std::vector<Parameter> parameters = decoder_parameters(g, m.checkpoint, m.model, {});
        const std::vector<Value> weights = trainable(g);
        REQUIRE(weights.size() == parameters.size());
        const std::vector<Value> found = gradients(loss, weights);
        g.output("loss", loss);
        for (std::size_t i = 0; i < found.size(); ++i) {
            g.output("grad." + std::to_string(i), contiguous(found[i]));
        }
        CompileOptions options;
        State state = options.state = device().make_state({&g});
        Program program = device().compile(g, Weights(), options);
        for (const Parameter& p : parameters) {
            const std::vector<float> numbers = numbers_of(p);
            state.write(p.kept.name, std::as_bytes(std::span(numbers)));
        }
        std::vector<std::int32_t> ids, labels;
        for (const std::vector<std::int32_t>& text : expected.batch(0)) {
            ids.insert(ids.end(), text.begin(), text.end() - 1);
            labels.insert(labels.end(), text.begin() + 1, text.end());
            ids.resize((ids.size() + 17) / 18 * 18);
            labels.resize(ids.size(), -100);
        }
        program.set("tokens", 18);
        program.upload("tokens", ids);
        program.upload("labels", labels);
        program.run();
        CHECK(program.download("loss")[0] == doctest::Approx(expected.numbers("loss")[0]).epsilon(1e-5));
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const std::string weight = weights[i].str().substr(0, weights[i].str().find(' '));
            CAPTURE(weight);
            const auto p = std::find_if(parameters.begin(), parameters.end(),
                                        [&](const Parameter& q) { return q.kept.name == weight; });
            REQUIRE(p != parameters.end());
            std::vector<float> numbers = program.download("grad." + std::to_string(i));
            Parameter turned = *p;
            turned.add_one = false;  // a gradient does not know
            to_file(turned, numbers);
            CHECK(worst_gradient_error(numbers, expected.numbers("grad." + weight)) <= 1.0);
        }
        ++models;
    }
    CHECK(models == 14);
}

TEST_CASE("fine-tuning: twenty steps of every architecture lose what PyTorch's do") {
    for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const ExpectedTraining expected(entry.path());
        FineTuner tuner = TunedModel(name.c_str()).tuner();
        const std::vector<float> losses = expected.numbers("losses"), norms = expected.numbers("grad_norms");
        for (std::int64_t step = 0; step < 20; ++step) {
            CAPTURE(step);
            CHECK(tuner.trainer().step() == step);
            const TrainingStep taken = tuner.take_step(expected.batch(step));
            CHECK(std::abs(taken.loss - losses[static_cast<std::size_t>(step)]) <= 1e-3);
            const float norm = norms[static_cast<std::size_t>(step)];
            CHECK(std::abs(taken.grad_norm - norm) <= 1e-3f * norm);
        }
    }
}

TEST_CASE("fine-tuning: micro-batches add up to the steps of the whole batch") {
    for (const float loss_scale : {0.0f, 256.0f}) {
        CAPTURE(loss_scale);
        const ExpectedTraining expected(kModels / "gpt2");
        FineTuneOptions options = small();
        options.micro_batch = 1;
        options.trainer.loss_scale = loss_scale;
        FineTuner tuner = TunedModel("gpt2").tuner(options);
        const std::vector<float> losses = expected.numbers("losses"), norms = expected.numbers("grad_norms");
        for (std::int64_t step = 0; step < 20; ++step) {
            CAPTURE(step);
            const TrainingStep taken = tuner.take_step(expected.batch(step));
            CHECK(std::abs(taken.loss - losses[static_cast<std::size_t>(step)]) <= 1e-3);
            CHECK(taken.grad_norm == doctest::Approx(norms[static_cast<std::size_t>(step)]).epsilon(1e-3));
        }
    }
    FineTuner whole = TunedModel("gpt2").tuner();
    CHECK_THROWS_WITH_AS(whole.trainer().accumulate(), "Trainer: TrainerOptions::accumulates was not asked for", Error);
    CHECK_THROWS_WITH_AS(whole.trainer().take_step(0.0f), "Trainer: a weight of 0.000000 is not positive", Error);
}

TEST_CASE("fine-tuning: what is saved is the model that was trained") {
    for (const char* name : {"gpt2", "gpt2_bare", "gemma2", "llama3"}) {
        CAPTURE(name);
        const ExpectedTraining expected(kModels / name);
        const TemporaryFolder folder;
        float wanted = 0;
        {
            FineTuner tuner = TunedModel(name).tuner();
            for (std::int64_t step = 0; step < 3; ++step) {
                tuner.take_step(expected.batch(step));
            }
            tuner.save(folder.path());
            wanted = tuner.take_step(expected.batch(3)).loss;
        }
        const Checkpoint saved(folder.path());
        FineTuner tuner(device(), saved, read_decoder(saved), small());
        // less 1 and 1 again loses bits
        CHECK(tuner.take_step(expected.batch(3)).loss == doctest::Approx(wanted).epsilon(1e-6));
    }
}

TEST_CASE("fine-tuning: a model is saved whole from wherever the process has gone, or not at all") {
    struct Place {
        std::filesystem::path before = std::filesystem::current_path();
        ~Place() { std::filesystem::current_path(before); }
    };
    const TemporaryFolder folder;
    const std::filesystem::path out = folder.path() / "out", gone = folder.path() / "gone";
    std::filesystem::copy(kModels / "llama", folder.path() / "model");
    const Place place;
    std::filesystem::current_path(folder.path());
    const Checkpoint checkpoint("model");
    const FineTuner tuner(device(), checkpoint, read_decoder(checkpoint), small());
    std::filesystem::current_path(place.before);
    tuner.save(out);
    CHECK(std::filesystem::exists(out / "config.json"));
    CHECK_NOTHROW(read_decoder(Checkpoint(out)));

    std::filesystem::remove(folder.path() / "model" / "config.json");
    CHECK(contains(error_of([&] { tuner.save(gone); }), "config.json: is not there any more"));
    CHECK(!std::filesystem::exists(gone));
}

TEST_CASE("fine-tuning: a run that goes on gives the same bits, and so does one that is repeated") {
    const ExpectedTraining expected(kModels / "qwen3");
    const TunedModel m("qwen3");
    const TemporaryFolder folder;
    for (const bool lora : {false, true}) {
        CAPTURE(lora);
        FineTuneOptions options = small();
        if (lora) {
            options.lora = {.rank = 3, .alpha = 6, .targets = {"q_proj", "model.layers.1.*_proj"}};
        }
        FineTuner whole = m.tuner(options), half = m.tuner(options), rest = m.tuner(options);
        for (std::int64_t step = 0; step < 6; ++step) {
            whole.take_step(expected.batch(step));
        }
        for (std::int64_t step = 0; step < 3; ++step) {
            half.take_step(expected.batch(step));
        }
        half.trainer().save(folder.path() / "checkpoint.safetensors");
        rest.trainer().resume(folder.path() / "checkpoint.safetensors");
        CHECK(rest.trainer().step() == 3);
        for (std::int64_t step = 3; step < 6; ++step) {
            rest.take_step(expected.batch(step));
        }
        CHECK(all_bytes(whole).size() > 1000);
        half.trainer().resume(folder.path() / "checkpoint.safetensors");
        rest.trainer().save(folder.path() / "rest.safetensors");
        whole.trainer().save(folder.path() / "whole.safetensors");
        CHECK(all_bytes(whole) == all_bytes(rest));
    }
}

TEST_CASE("fine-tuning: a hundred runs of a step give the same bits" * doctest::test_suite("many runs")) {
    const ExpectedTraining expected(kModels / "mistral");
    FineTuner tuner = TunedModel("mistral").tuner();
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "checkpoint.safetensors";
    tuner.trainer().save(file);
    const std::vector<std::byte> before = all_bytes(tuner);
    std::vector<std::byte> first;
    for (int run = 0; run < 100; ++run) {
        tuner.take_step(expected.batch(0));
        const std::vector<std::byte> now = all_bytes(tuner);
        first = run == 0 ? now : first;
        REQUIRE(now == first);
        tuner.trainer().resume(file);
    }
    CHECK(first != before);
}

TEST_CASE("fine-tuning: a norm that is not finite leaves everything as it was, and says so") {
    const ExpectedTraining expected(kModels / "llama");
    TrainerOptions trainer = cosine_adamw();
    FineTuner tuner = TunedModel("llama").tuner(small(trainer));
    tuner.take_step(expected.batch(0));
    const std::string name = tuner.trainer().parameters().back();
    State& state = tuner.trainer().state();
    const std::vector<std::byte> good = state.read(name);
    std::vector<std::byte> bad = good;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bad.data(), &nan, sizeof nan);
    state.write(name, bad);
    const std::vector<std::byte> before = all_bytes(tuner);
    CHECK_THROWS_WITH_AS(tuner.take_step(expected.batch(1)),
                         "Trainer: step 1: the loss is not finite; no parameter was updated", Error);
    CHECK(all_bytes(tuner) == before);
    CHECK(tuner.trainer().step() == 1);
    state.write(name, good);
    CHECK(std::isfinite(tuner.take_step(expected.batch(1)).loss));
}

TEST_CASE("trainer: a step whose loss alone is not finite was taken, and is counted") {
    Graph g;
    const Value error = g.input("x", {3, 4}) * g.weight("w", {3, 4});
    Trainer trainer(device(), g, sum(error * error) + sum(g.input("more", {3, 4})), trainable(g),
                    {.optimizer = Sgd{.learning_rate = 0.25f}});
    const std::vector<float> ones(12, 1.0f), infinite(12, std::numeric_limits<float>::infinity());
    trainer.state().write("w", std::as_bytes(std::span(ones)));
    trainer.program().upload("x", ones);
    trainer.program().upload("more", infinite);
    CHECK(error_of([&] { trainer.take_step(); }) ==
          "Trainer: step 0: the loss is not finite; the gradients are, and were used");
    CHECK(trainer.step() == 1);
    std::vector<float> w(12);
    const std::vector<std::byte> bytes = trainer.state().read("w");
    std::memcpy(w.data(), bytes.data(), bytes.size());
    CHECK(w == std::vector<float>(12, 0.5f));
}

TEST_CASE("fine-tuning: a loss that is scaled gives the same steps, and adapts where gradients overflow") {
    const ExpectedTraining expected(kModels / "gpt2");
    TrainerOptions trainer = cosine_adamw();
    trainer.loss_scale = 1024.0f;
    FineTuner tuner = TunedModel("gpt2").tuner(small(trainer));
    const std::vector<float> losses = expected.numbers("losses"), norms = expected.numbers("grad_norms");
    for (std::int64_t step = 0; step < 4; ++step) {
        const TrainingStep taken = tuner.take_step(expected.batch(step));
        CHECK(std::abs(taken.loss - losses[static_cast<std::size_t>(step)]) <= 1e-3);
        CHECK(taken.grad_norm == doctest::Approx(norms[static_cast<std::size_t>(step)]).epsilon(1e-3));
    }
    trainer.loss_scale = 0x1p126f;
    FineTuner high = TunedModel("gpt2").tuner(small(trainer));
    const std::vector<std::byte> before = all_bytes(high);
    const TrainingStep left = high.take_step(expected.batch(0));
    CHECK(left.left_out);
    CHECK(high.trainer().step() == 0);
    CHECK(all_bytes(high) == before);
    trainer.loss_scale = 1.0f;  // not left out: there is nothing to halve
    trainer.optimizer = Sgd{.learning_rate = 1e30};
    FineTuner wild = TunedModel("gpt2").tuner(small(trainer));
    CHECK_THROWS_AS(
        [&] {
            for (int step = 0; step < 40; ++step) {
                wild.take_step(expected.batch(step));
            }
        }(),
        Error);
    int tries = 0;
    while (high.take_step(expected.batch(0)).left_out) {
        REQUIRE(++tries < 200);
    }
    CHECK(high.trainer().step() == 1);
}

TEST_CASE("fine-tuning: how weights are loaded that stay is refused where all are trained") {
    const TunedModel m("llama");
    FineTuneOptions options = small();
    options.load.matrices = WeightType::int8;
    CHECK(
        error_of([&] { m.tuner(options); }) ==
        "FineTuner: load.matrices = int8 is for weights that stay as they are: without lora all are trained, in fp32");
    options.load.matrices = {};
    options.load.choose = [](const HostTensor&) { return std::optional(WeightType::f16); };
    CHECK(contains(error_of([&] { m.tuner(options); }), "FineTuner: load.choose is for weights that stay"));

    options.load = {.matrices = WeightType::f32};
    std::vector<std::uint64_t> done;
    std::uint64_t all = 0;
    options.load.progress = [&](std::uint64_t now, std::uint64_t of) {
        done.push_back(now);
        all = of;
    };
    FineTuner tuner = m.tuner(options);
    REQUIRE(done.size() == tuner.trainer().parameters().size());
    CHECK(std::is_sorted(done.begin(), done.end()));
    CHECK(done.front() > 0);
    CHECK(done.back() == all);
}

TEST_CASE("fine-tuning: steps accumulate where that is asked for, also without smaller batches") {
    const ExpectedTraining expected(kModels / "llama");
    const TunedModel m("llama");
    FineTuneOptions options = small();
    options.trainer.accumulates = true;
    FineTuner tuner = m.tuner(options), plain = m.tuner();
    CHECK(tuner.take_step(expected.batch(0)).loss == plain.take_step(expected.batch(0)).loss);
    CHECK(std::isfinite(tuner.trainer().accumulate(2.0f)));  // of the texts that were uploaded
}

TEST_CASE("fine-tuning: bad input is refused with what is wrong, and changes nothing") {
    const ExpectedTraining expected(kModels / "llama");
    const TunedModel m("llama");
    FineTuner tuner = m.tuner();
    const auto takes = [&](const TrainingTexts& texts) { tuner.take_step(texts); };
    CHECK_THROWS_WITH_AS(takes({}), "FineTuner: 0 texts are outside 1..2", Error);
    CHECK_THROWS_WITH_AS(takes({{5}}), "FineTuner: text 0 has 1 tokens, which are outside 2..24", Error);
    CHECK_THROWS_WITH_AS(takes({{5, 6}, {5, 97}}), "FineTuner: token 97 is outside the vocabulary of 97", Error);
    CHECK_THROWS_WITH_AS(m.tuner({.max_tokens = 129}), "FineTuner: max_tokens = 129 is outside 2..128", Error);
    FineTuneOptions lora = small();
    lora.lora = {.rank = 0, .targets = {"q_proj"}};
    CHECK_THROWS_WITH_AS(m.tuner(lora), "lora: rank = 0 is below 1", Error);
    lora.lora = {.rank = 2, .targets = {"q_proj", "c_attn"}};
    CHECK_THROWS_WITH_AS(m.tuner(lora), "lora: no linear layer fits \"c_attn\"", Error);

    FineTuneOptions two = small();
    two.max_tokens = 2;
    CHECK(std::isfinite(m.tuner(two).take_step(TrainingTexts{{5, 6}}).loss));

    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "checkpoint.safetensors";
    const std::vector<std::byte> before = all_bytes(tuner);
    lora.lora = {.rank = 2, .targets = {"q_proj"}};
    FineTuner low = m.tuner(lora);
    low.trainer().save(file);
    lora.lora->rank = 3;  // a part of it would fit
    CHECK_THROWS_AS(m.tuner(lora).trainer().resume(file), Error);
    TunedModel("qwen3").tuner().trainer().save(file);
    CHECK_THROWS_AS(tuner.trainer().resume(file), Error);
    tuner.trainer().save(file);
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 5);
    CHECK_THROWS_AS(tuner.trainer().resume(file), Error);
    CHECK_THROWS_AS(tuner.trainer().save(folder.path() / "no" / "folder.safetensors"), Error);
    if (std::filesystem::exists("/dev/full")) {
        CHECK_THROWS_AS(tuner.trainer().save("/dev/full/checkpoint.safetensors"), Error);
    }
    CHECK(all_bytes(tuner) == before);
    CHECK(tuner.trainer().step() == 0);
}

TEST_SUITE_END();
