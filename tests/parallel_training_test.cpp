// SPDX-License-Identifier: Apache-2.0
// Training on several ranks, each with a part of the batch, beside one with all of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ops/collectives.h"
#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "tests/decoder_models.h"
#include "tests/fixtures.h"
#include "tests/ranks.h"
#include "train/fine_tuner.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Batch = std::vector<std::vector<std::int32_t>>;

/// Texts of unlike lengths, so that ranks count by unlike numbers of labels.
Batch batch_of(std::int64_t step) {
    Batch batch;
    for (std::int32_t i = 0; i < 4; ++i) {
        std::vector<std::int32_t> text;
        for (std::int32_t n = 0; n < 4 + 3 * i; ++n) {
            text.push_back((static_cast<std::int32_t>(step) * 7 + i * 13 + n * (i + 2)) % 60);
        }
        batch.push_back(text);
    }
    return batch;
}

FineTuneOptions options_of(std::int64_t micro_batch, const std::shared_ptr<Communicator>& c) {
    TrainerOptions trainer{.optimizer = AdamW{.learning_rate = 1e-3, .weight_decay = 0.1},
                           .schedule = {.kind = Schedule::Kind::cosine, .warmup = 3, .steps = 20},
                           .max_norm = 1.0f,
                           .communicator = c};
    return {.max_batch = 4, .micro_batch = micro_batch, .max_tokens = 24, .trainer = trainer};
}

struct Learned {
    std::vector<TrainingStep> steps;
    std::vector<std::vector<std::byte>> parameters;
};

/// Takes steps on the texts `first`, `first + stride`, ... of each batch.
Learned learn(const std::string& family, FineTuneOptions options, std::size_t first, std::size_t stride, int steps) {
    const Checkpoint checkpoint(kModels / family);
    FineTuner tuner(device(), checkpoint, read_decoder(checkpoint), options);
    Learned out;
    for (int step = 0; step < steps; ++step) {
        const Batch all = batch_of(step);
        Batch own;
        for (std::size_t i = first; i < all.size(); i += stride) {
            own.push_back(all[i]);
        }
        out.steps.push_back(tuner.take_step(own));
    }
    for (const std::string& name : tuner.trainer().parameters()) {
        out.parameters.push_back(tuner.trainer().state().read(name));
    }
    return out;
}

double worst_difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    std::vector<float> x(a.size() / sizeof(float)), y(x.size());
    std::memcpy(x.data(), a.data(), a.size());
    std::memcpy(y.data(), b.data(), b.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
    }
    return worst;
}

}  // namespace

TEST_SUITE("parallel training") {
    TEST_CASE("parallel training: ranks with parts of the batch take the steps of one with all of it") {
        struct Case {
            const char* family;
            int ranks;
            std::int64_t micro_batch;
            int steps;
        };
        for (const Case& c : {Case{"llama3", 2, 0, 20}, Case{"gpt2", 3, 1, 20}, Case{"llama3", 4, 0, 20}}) {
            CAPTURE(c.family);
            const auto stride = static_cast<std::size_t>(c.ranks);
            const Learned one = learn(c.family, options_of(0, nullptr), 0, 1, c.steps);
            std::vector<Learned> all(stride);
            const auto errors = on_ranks(c.ranks, [&](const std::shared_ptr<Communicator>& communicator) {
                const auto r = static_cast<std::size_t>(communicator->rank());
                all[r] = learn(c.family, options_of(c.micro_batch, communicator), r, stride, c.steps);
            });
            REQUIRE(joined(errors) == "");
            for (std::size_t i = 0; i < one.steps.size(); ++i) {
                CAPTURE(i);
                CHECK(std::abs(all[0].steps[i].loss - one.steps[i].loss) <= 1e-4);
                CHECK(std::abs(all[0].steps[i].grad_norm - one.steps[i].grad_norm) <= 2e-3 * one.steps[i].grad_norm);
                CHECK(all[0].steps[i].loss == all[1].steps[i].loss);
            }
            // the ranks' parameters stay the same, bit for bit
            CHECK(all[0].parameters == all[1].parameters);
            for (std::size_t p = 0; p < one.parameters.size(); ++p) {
                CHECK(worst_difference(all[0].parameters[p], one.parameters[p]) < 2e-3);
            }
        }
    }

    TEST_CASE("parallel training: gradients of the last layers are exchanged while the backward goes on") {
        constexpr std::int64_t kWidth = 512;
        std::vector<std::string> explained(2);
        std::vector<float> after[2];
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            Graph graph;
            Value x = graph.input("x", {4, kWidth});
            for (const char* name : {"first", "second", "third"}) {
                x = relu(linear(x, graph.weight(name, {kWidth, kWidth})));
            }
            Trainer trainer(device(), graph, sum(x * x), trainable(graph), {.communicator = c});
            for (std::size_t i = 0; i < trainer.parameters().size(); ++i) {
                std::vector<float> numbers(kWidth * kWidth);
                for (std::size_t k = 0; k < numbers.size(); ++k) {
                    numbers[k] = std::sin(static_cast<float>(k + i)) * 0.1f;
                }
                trainer.state().write(trainer.parameters()[i], std::as_bytes(std::span(numbers)));
            }
            trainer.program().upload("x", std::vector<float>(4 * kWidth, static_cast<float>(1 + c->rank())));
            trainer.take_step();
            const auto r = static_cast<std::size_t>(c->rank());
            explained[r] = trainer.program().explain();
            const std::vector<std::byte> bytes = trainer.state().read("first");
            after[r].resize(bytes.size() / sizeof(float));
            std::memcpy(after[r].data(), bytes.data(), bytes.size());
            const Plan& plan = plan_of(trainer.program());
            std::vector<std::size_t> meanwhile;  // dispatches of each collective's time
            for (std::size_t e = 0; e < plan.work.size(); ++e) {
                if (plan.work[e].kind == WorkKind::collective) {
                    meanwhile.push_back(plan.dispatches[plan.work[e].index].over_before - e - 1);
                }
            }
            REQUIRE(meanwhile.size() == 3);
            CHECK(meanwhile[0] >= 2);  // the gradients of the second layer's weight and input
            CHECK(meanwhile[1] >= 1);
        });
        REQUIRE(joined(errors) == "");
        CHECK(explained[1].find("all_reduce of rank 1 of 2, on the host, while the next ") != std::string::npos);
        CHECK(after[0] == after[1]);
    }

    TEST_CASE("parallel training: several gradients go in one bucket, while the backward of earlier layers goes on") {
        // ten weights of 25600 numbers and their biases fill a bucket
        constexpr std::int64_t kWidth = 160, kLayers = 14;
        std::vector<std::vector<std::vector<std::byte>>> after(3);
        const auto train = [&](const std::shared_ptr<Communicator>& c, std::size_t out) {
            Graph graph;
            const std::int64_t rows = c ? 4 : 8;
            Value x = graph.input("x", {rows, kWidth});
            for (std::int64_t i = 0; i < kLayers; ++i) {
                const std::string name = "layer" + std::to_string(i);
                x = x + relu(linear(x, graph.weight(name, {kWidth, kWidth}), graph.weight(name + ".bias", {kWidth})));
            }
            const Value loss = scale(sum(x * x), 1.0f / static_cast<float>(rows * kWidth));
            Trainer trainer(device(), graph, loss, trainable(graph),
                            {.optimizer = Sgd{.learning_rate = 1e-3}, .communicator = c});
            for (const std::string& name : trainer.parameters()) {
                std::vector<float> numbers(trainer.state().read(name).size() / sizeof(float));
                for (std::size_t k = 0; k < numbers.size(); ++k) {
                    numbers[k] = std::sin(static_cast<float>(k + name.size())) * 0.03f;
                }
                trainer.state().write(name, std::as_bytes(std::span(numbers)));
            }
            std::vector<float> data;
            for (std::int64_t i = 0; i < rows * kWidth; ++i) {
                data.push_back(std::cos(static_cast<float>(i + (c ? c->rank() * rows * kWidth : 0))));
            }
            trainer.program().upload("x", data);
            trainer.take_step();
            for (const std::string& name : trainer.parameters()) {
                after[out].push_back(trainer.state().read(name));
            }
            if (!c) {
                return;
            }
            const Plan& plan = plan_of(trainer.program());
            std::vector<std::size_t> meanwhile;
            for (std::size_t e = 0; e < plan.work.size(); ++e) {
                if (plan.work[e].kind == WorkKind::collective) {
                    meanwhile.push_back(plan.dispatches[plan.work[e].index].over_before - e - 1);
                }
            }
            REQUIRE(meanwhile.size() == 2);  // 28 tensors
            CHECK(meanwhile[0] >= 4);        // gradients of the layers before those of the bucket
            CHECK(c->traffic().all_reduce_elements >= static_cast<std::uint64_t>(kLayers * (kWidth + 1) * kWidth));
        };
        train(nullptr, 2);
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            train(c, static_cast<std::size_t>(c->rank()));
        });
        REQUIRE(joined(errors) == "");
        CHECK(after[0] == after[1]);
        for (std::size_t p = 0; p < after[2].size(); ++p) {
            CHECK(worst_difference(after[0][p], after[2][p]) < 1e-5);
        }
    }

    TEST_CASE("parallel training: ranks begin with the first one's parameters, and must train the same") {
        std::vector<std::vector<std::byte>> after(2);
        auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            Graph graph;
            const Value x = graph.input("x", {4, 3}), weight = graph.weight("weight", {2, 3});
            const Value y = linear(x, weight);
            Trainer trainer(device(), graph, sum(y * y), trainable(graph), {.communicator = c});
            const std::vector<float> numbers(6, c->rank() == 0 ? 1.0f : -5.0f), data(12, 0.5f);
            trainer.state().write("weight", std::as_bytes(std::span(numbers)));
            trainer.program().upload("x", data);
            const TrainingStep step = trainer.take_step();
            CHECK(step.loss == doctest::Approx(18.0));  // the mean of both: eight numbers of 1.5
            CHECK_THROWS_WITH_AS(trainer.accumulate(), "Trainer: TrainerOptions::accumulates was not asked for", Error);
            after[static_cast<std::size_t>(c->rank())] = trainer.state().read("weight");
        });
        CHECK(joined(errors) == "");
        CHECK(after[0] == after[1]);
        errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            Graph graph;
            const Value x = graph.input("x", {4, 3}), weight = graph.weight("weight", {2 + c->rank(), 3});
            const Value y = linear(x, weight);
            Trainer trainer(device(), graph, sum(y * y), trainable(graph), {.communicator = c});
            trainer.take_step();
        });
        CHECK(errors[0] == "rank 1: has another set of parameters than rank 0");
    }

    TEST_CASE("parallel training: gradients that do not lie densely are exchanged") {
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            Graph graph;
            const Value x = graph.input("x", {3, 2}), w = graph.weight("w", {2, 3});
            Trainer trainer(device(), graph, sum(transpose(w, 0, 1) * x), trainable(graph),
                            {.optimizer = Sgd{.learning_rate = 1.0}, .communicator = c});
            const float r = static_cast<float>(8 * c->rank());  // the mean is 4 more than rank 0's
            trainer.program().upload("x", std::vector<float>{r, 1 + r, 2 + r, 3 + r, 4 + r, 5 + r});
            trainer.take_step();
            const std::vector<std::byte> bytes = trainer.state().read("w");
            std::vector<float> numbers(6);
            std::memcpy(numbers.data(), bytes.data(), bytes.size());
            CHECK(numbers == std::vector<float>{-4, -6, -8, -5, -7, -9});
        });
        CHECK(joined(errors) == "");
    }

    TEST_CASE("parallel training: a loss that sums what depends on parameters over the ranks is refused") {
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            for (const bool accumulates : {false, true}) {
                Graph graph;
                const Value x = graph.input("x", {4}), y = all_reduce(graph.weight("w", {4}) * x);
                CHECK(error_of([&] {
                          Trainer(device(), graph, sum(y * y), trainable(graph),
                                  {.accumulates = accumulates, .communicator = c});
                      }) ==
                      "Trainer: the loss depends on parameters through all_reduce: with a communicator each rank "
                      "has a loss of its own, of its part of the batch");
            }
            // numbers that no parameter changes may be summed
            Graph graph;
            const Value x = graph.input("x", {4}), w = graph.weight("w", {4});
            all_reduce(w);  // not a part of the loss
            Trainer trainer(device(), graph, sum(w * all_reduce(x)), trainable(graph),
                            {.optimizer = Sgd{.learning_rate = 1.0}, .communicator = c});
            trainer.program().upload("x", std::vector<float>(4, static_cast<float>(1 + c->rank())));
            CHECK(trainer.take_step().grad_norm == doctest::Approx(6.0));
            // but for ranks that may have unlike numbers of runs
            Graph runs;
            const Value part = runs.input("x", {4}), v = runs.weight("v", {4});
            const std::vector<Value> trained = trainable(runs);
            const auto said = [&](const Value& loss) {
                return error_of(
                    [&] { Trainer(device(), runs, loss, trained, {.accumulates = true, .communicator = c}); });
            };
            const std::string unlike = ", and ranks that accumulate may have unlike numbers of micro-batches";
            CHECK(said(sum(v * all_reduce(part))) ==
                  "Trainer: the loss, an output or a state needs all_reduce" + unlike);
            CHECK(said(sum(v * broadcast(part, 0))) ==
                  "Trainer: the loss, an output or a state needs broadcast" + unlike);
            CHECK(runs.symbols().empty());
            Trainer of_own(device(), runs, sum(v * part), trained,
                           {.optimizer = Sgd{.learning_rate = 1.0}, .accumulates = true, .communicator = c});
            of_own.program().upload("x", std::vector<float>(4, static_cast<float>(1 + c->rank())));
            CHECK(of_own.take_step().grad_norm == doctest::Approx(3.0));
        });
        CHECK(joined(errors) == "");
    }
}
