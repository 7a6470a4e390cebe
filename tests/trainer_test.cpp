// SPDX-License-Identifier: Apache-2.0
// What a Trainer takes, and what it does with micro-batches: draws, checkpoints, steps that fail.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/files/safetensors.h"
#include "ops/ops.h"
#include "ops/recompute.h"
#include "parallel/transport.h"
#include "runtime/graph/node.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "tests/ranks.h"
#include "train/trainer.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr std::int64_t kWidth = 64;

/// Draws w to the mean of x, of which a part may be dropped.
class Drawn {
public:
    explicit Drawn(const TrainerOptions& options, float dropped = 0.0f, const Device& on = device())
        : x_(graph_.input("x", {kWidth})),
          w_(graph_.weight("w", {kWidth})),
          trainer_(on, graph_, loss(dropped), trainable(graph_), options) {}

    Trainer& trainer() { return trainer_; }
    void upload(float x) { trainer_.program().upload("x", std::vector<float>(kWidth, x)); }
    std::vector<std::byte> w() { return trainer_.state().read("w"); }

private:
    Value loss(float dropped) {
        const Value x = dropped > 0 ? dropout(x_, dropped, graph_.symbol("step", 1 << 30)) : x_;
        const Value off = w_ + scale(x, -1.0f);
        return sum(off * off);
    }

    Graph graph_;
    Value x_, w_;
    Trainer trainer_;
};

/// Another number of good steps, and another loss scale, for a checkpoint.
void set_progress(const std::filesystem::path& from, const std::filesystem::path& to, std::int32_t good, float scale) {
    const Safetensors file(from);
    std::vector<HostTensor> tensors(file.tensors().begin(), file.tensors().end());
    const std::vector<std::int32_t> numbers{0, good, std::bit_cast<std::int32_t>(scale)};
    for (HostTensor& t : tensors) {
        if (t.name == "trainer.progress") {
            t.data = std::as_bytes(std::span(numbers));
        }
    }
    save_safetensors(to, tensors);
}

float loss_scale_in(const std::filesystem::path& checkpoint) {
    const Safetensors file(checkpoint);
    std::array<std::int32_t, 3> numbers{};
    std::memcpy(numbers.data(), file.at("trainer.progress").data.data(), sizeof numbers);
    return std::bit_cast<float>(numbers[2]);
}

TrainerOptions options_of(bool accumulates, float learning_rate = 0.125f) {
    return {.optimizer = Sgd{.learning_rate = learning_rate}, .accumulates = accumulates};
}

}  // namespace

TEST_SUITE("trainer") {
    TEST_CASE("trainer: dropout draws anew in each step, also where steps accumulate") {
        std::vector<float> whole, parts;
        for (const bool accumulates : {false, true}) {
            Drawn drawn(options_of(accumulates, 0.0f), 0.5f);
            for (int step = 0; step < 3; ++step) {
                drawn.upload(1.0f);
                (accumulates ? parts : whole).push_back(drawn.trainer().take_step().loss);
            }
        }
        CHECK(whole == parts);
        CHECK(whole[0] != whole[1]);
        CHECK(whole[1] != whole[2]);
    }

    TEST_CASE("trainer: a run with micro-batches goes on from a checkpoint of one without, and back") {
        const TemporaryFolder folder;
        const std::filesystem::path file = folder.path() / "training.safetensors";
        for (const bool first : {false, true}) {
            TrainerOptions from = options_of(first), to = options_of(!first);
            from.optimizer = to.optimizer = AdamW{.learning_rate = 0.1};
            Drawn before(from), after(to);
            before.upload(1.0f);
            before.trainer().take_step();
            before.trainer().save(file);
            after.trainer().resume(file);
            CHECK(after.trainer().step() == 1);
            for (Drawn* d : {&before, &after}) {
                d->upload(2.0f);
                d->trainer().take_step();
            }
            CHECK(before.w() == after.w());
        }
    }

    TEST_CASE("trainer: a step that fails behind its gradients leaves none of them to the next try") {
        std::vector<std::vector<std::byte>> after(2);
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            TrainerOptions options = options_of(true);
            options.communicator = c;
            Drawn drawn(options), never(options_of(false));
            const auto r = static_cast<std::size_t>(c->rank());
            drawn.upload(0.0f);
            drawn.trainer().take_step();  // the ranks are alike from here on
            drawn.upload(r == 0 ? 1000.0f : 0.0f);
            if (r == 0) {
                CHECK_THROWS_AS(drawn.trainer().take_step(), Error);
            } else {
                // the sum of weights as take_step() does it, and something else than the update
                std::vector<float> weight(1);
                c->all_reduce(weight);
                std::vector<std::byte> other(3);
                CHECK_THROWS_AS(c->broadcast(other), Error);
            }
            drawn.upload(r == 0 ? 1.0f : 3.0f);
            drawn.trainer().take_step();
            after[r] = drawn.w();
            never.upload(2.0f);
            never.trainer().take_step();
            CHECK(after[r] == never.w());
        });
        CHECK(joined(errors) == "");
        CHECK(after[0] == after[1]);
    }

    TEST_CASE("trainer: a step that may have been taken when the device failed is not taken twice") {
        const TemporaryFolder folder;
        const std::filesystem::path file = folder.path() / "training.safetensors";
        for (const bool accumulates : {false, true}) {
            CAPTURE(accumulates);
            Drawn never(options_of(accumulates));
            for (int step = 0; step < 2; ++step) {
                never.upload(1.0f);
                if (accumulates) {
                    never.trainer().accumulate();
                }
                never.trainer().take_step();
            }
            fake::Vulkan vulkan;
            const Device own = Device::create({.get_instance_proc_addr = vulkan.entry()});
            Drawn drawn(options_of(accumulates), 0.0f, own);
            Trainer& trainer = drawn.trainer();
            const auto step = [&] { trainer.take_step(); };
            drawn.upload(1.0f);
            vulkan.vkQueueSubmit.fail(VK_ERROR_OUT_OF_HOST_MEMORY);  // nothing was submitted
            CHECK(contains(error_of(step), "vkQueueSubmit"));
            if (accumulates) {
                vulkan.vkWaitForFences.fail(VK_ERROR_OUT_OF_HOST_MEMORY);  // but the sums have it
                CHECK(contains(error_of([&] { trainer.accumulate(); }), "vkWaitForFences"));
                trainer.accumulate();
            }
            step();
            trainer.save(file);
            drawn.upload(1.0f);
            if (accumulates) {
                trainer.accumulate();
            }
            vulkan.vkWaitForFences.fail(VK_ERROR_OUT_OF_HOST_MEMORY, accumulates ? 2 : 1);
            CHECK(contains(error_of(step), "vkWaitForFences"));
            const std::string in_part = "step 1 failed when parameters may have been updated; resume()";
            CHECK(contains(error_of(step), in_part));
            CHECK(contains(error_of([&] { trainer.save(file); }), in_part));
            trainer.resume(file);
            if (accumulates) {
                trainer.accumulate();
            }
            step();
            CHECK(drawn.w() == never.w());
        }
    }

    TEST_CASE("trainer: a step that did not run, as a canary tells, is taken by the next try") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        const Device own = Device::create({.canary = true, .get_instance_proc_addr = vulkan.entry()});
        Drawn never(options_of(false)), drawn(options_of(false), 0.0f, own);
        never.upload(1.0f);
        never.trainer().take_step();
        drawn.upload(1.0f);
        vulkan.vkQueueSubmit.instead = [&vulkan](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                                 VkFence fence) {
            VkSubmitInfo empty = infos[0];
            empty.commandBufferCount = 0;
            return vulkan.vkQueueSubmit.real(queue, count, &empty, fence);
        };
        CHECK(contains(error_of([&] { drawn.trainer().take_step(); }), "did not run"));
        vulkan.vkQueueSubmit.instead = nullptr;
        drawn.trainer().take_step();
        CHECK(drawn.trainer().step() == 1);
        CHECK(drawn.w() == never.w());
    }

    TEST_CASE("trainer: ranks whose weight decay or micro-batches differ are told so") {
        for (const bool decay : {false, true}) {
            const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
                c->limit(60);
                TrainerOptions options = options_of(!decay && c->rank() == 1);
                options.communicator = c;
                if (decay) {
                    options.decay_to = [&](const std::string&) { return static_cast<float>(c->rank()); };
                }
                Drawn drawn(options);
                drawn.upload(1.0f);
                drawn.trainer().take_step();
            });
            CHECK(errors[0] == "rank 1: has another set of options than rank 0");
        }
    }

    TEST_CASE("trainer: ranks that go on from loss scales which differ in a last digit are told so") {
        const TemporaryFolder folder;
        TrainerOptions options = options_of(false);
        options.loss_scale = 2.0f;
        Drawn(options).trainer().save(folder.path() / "2");
        set_progress(folder.path() / "2", folder.path() / "0", 0, 1e-7f);
        set_progress(folder.path() / "2", folder.path() / "1", 0, 2e-7f);
        for (const bool alike : {true, false}) {
            const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
                c->limit(60);
                TrainerOptions own = options;
                own.communicator = c;
                Drawn drawn(own);
                drawn.trainer().resume(folder.path() / (alike ? "1" : std::to_string(c->rank())));
                drawn.upload(1.0f);
                drawn.trainer().take_step();
            });
            CHECK(errors[0] == (alike ? "" : "rank 1: has another step to go on from than rank 0"));
        }
    }

    TEST_CASE("trainer: what update() cannot write is no parameter, whether steps accumulate or not") {
        for (const bool accumulates : {false, true}) {
            CAPTURE(accumulates);
            Graph g, other;
            const Value x = g.input("x", {2, 2}), weight = g.weight("u", {2, 2}), w = g.state("w", {2, 2}),
                        half = g.state("h", {2, 2}, DType::f16);
            const Value loss = sum(x * weight * transpose(w, 0, 1) * to(half, DType::f32));
            const auto said = [&](const std::vector<Value>& parameters) {
                return error_of([&] { Trainer(device(), g, loss, parameters, options_of(accumulates)); });
            };
            const std::string not_state = " is not a state, so it cannot be written: see trainable()",
                              part = " is a part of a state; the whole is updated";
            CHECK(said({weight}) == "Trainer: u (2, 2) F32" + not_state);
            CHECK(said({x}) == "Trainer: x (2, 2) F32" + not_state);
            CHECK(said({scale(w, 2.0f)}) == "Trainer: value (2, 2) F32" + not_state);
            CHECK(said({transpose(w, 0, 1)}) == "Trainer: w (2, 2) F32" + part);
            CHECK(said({slice(w, 0, 0, 1)}) == "Trainer: w (1, 2) F32" + part);
            CHECK(said({half}) == "Trainer: h (2, 2) F16 must be F32: use to(x, DType::f32)");
            CHECK(said({w, w}) == "Trainer: w (2, 2) F32 is given twice");
            CHECK(said({w, other.state("v", {2, 2})}) == "Trainer: v (2, 2) F32 belongs to another graph");
            CHECK(said({}) == "Trainer: there is no parameter to train");
        }
    }

    TEST_CASE("trainer: a graph is as it was where options are refused") {
        for (const bool accumulates : {false, true}) {
            CAPTURE(accumulates);
            Graph g, other;
            const Value x = g.input("x", {4}), w = g.weight("w", {4}), loss = sum(w * x), rows = w * x;
            const std::vector<Value> parameters = trainable(g);
            const std::size_t storages = g.storages().size(), nodes = g.nodes().size();
            const auto refused = [&](TrainerOptions o, const Value& of, const std::vector<Value>& trained) {
                o.accumulates = accumulates;
                CHECK_THROWS_AS(Trainer(device(), g, of, trained, o), Error);
                CHECK(g.storages().size() == storages);
                CHECK(g.nodes().size() == nodes);
                CHECK(g.symbols().empty());
            };
            refused({.optimizer = AdamW{.beta1 = 2}}, loss, parameters);
            refused({.optimizer = Sgd{.nesterov = true}}, loss, parameters);
            refused({.schedule = {.kind = Schedule::Kind::linear}}, loss, parameters);
            refused({.schedule = {.warmup = -1}}, loss, parameters);
            refused({.max_norm = -1.0f}, loss, parameters);
            refused({.loss_scale = -1.0f}, loss, parameters);
            refused({.decay_to = [](const std::string&) { return std::numeric_limits<float>::infinity(); }}, loss,
                    parameters);
            refused({}, loss, {w, w});
            refused({}, sum(other.input("x", {4})), parameters);
            refused({}, rows, parameters);
            refused({.loss_scale = 8.0f}, rows, parameters);
            CHECK(error_of([&] { Trainer(device(), g, rows, parameters, {.loss_scale = 8.0f}); }) ==
                  "Trainer: the loss value (4) F32 is not one number");
            Trainer trainer(device(), g, loss, parameters, options_of(accumulates));
            trainer.program().upload("x", std::vector<float>(4, 2.0f));
            CHECK(trainer.take_step().grad_norm == doctest::Approx(4.0));
        }
    }

    TEST_CASE("trainer: a graph is as it was where its completion is refused, and takes another step") {
        struct Case {
            std::string parameter = {}, state = {}, said = {};
            Shape shape = {4};
            DType dtype = DType::f32;
            bool open = false, ranks = false, accumulates = false;
        };
        for (const Case& c : {
                 Case{.parameter = "w", .said = "gradients: a block that is computed again has not", .open = true},
                 Case{.parameter = "w", .state = "s", .said = "gradients: "},
                 Case{.parameter = "divisor", .said = "input divisor", .ranks = true, .accumulates = true},
                 Case{.parameter = "grad_norm", .said = "output grad_norm", .accumulates = true},
                 Case{.parameter = "w", .state = "w.moments", .said = "w.moments is (7) F32", .shape = {7}},
                 Case{.parameter = "w",
                 .state = "w.gradient",
                 .said = "w.gradient is (4) F16",
                 .dtype = DType::f16,
                 .accumulates = true},
             }) {
            CAPTURE(c.said);
            Graph g;
            const Value x = g.input("x", {4}), w = g.weight(c.parameter, {4}), product = w * x, good = sum(product);
            Value loss = good;
            if (!c.state.empty()) {
                const Value state = g.state(c.state, c.shape, c.dtype);
                loss = c.state == "s" ? sum(copy_into(state, product)) : good;
            }
            const std::vector<Value> parameters = trainable(g);
            const std::size_t storages = g.storages().size(), nodes = g.nodes().size();
            TrainerOptions options = options_of(c.accumulates);
            options.optimizer = AdamW{};
            options.loss_scale = 8.0f;
            if (c.ranks) {
                options.communicator = std::make_shared<Communicator>(std::move(local_transports(1)[0]));
            }
            {
                std::optional<Recompute> open;
                if (c.open) {
                    open.emplace(g);
                }
                CHECK(contains(error_of([&] { Trainer(device(), g, loss, parameters, options); }), c.said));
            }
            CHECK(g.storages().size() == storages);
            CHECK(g.nodes().size() == nodes);
            CHECK(g.symbols().empty());
            CHECK(g.constraints().empty());
            if (c.parameter != "grad_norm") {  // for that no step has room
                Trainer trainer(device(), g, good, parameters, {.optimizer = Sgd{}, .loss_scale = 8.0f});
                trainer.program().upload("x", std::vector<float>(4, 2.0f));
                CHECK(trainer.take_step().grad_norm == doctest::Approx(4.0));
            }
        }
    }

    TEST_CASE("trainer: states have names that a checkpoint can have") {
        for (const char* name : {"__metadata__", "\xff"}) {
            for (const bool parameter : {false, true}) {
                Graph g;
                const Value w = g.weight(parameter ? name : "w", {4}), loss = sum(w * g.input("x", {4}));
                if (!parameter) {
                    g.state(name, {4});
                }
                const std::vector<Value> parameters = trainable(g);
                const std::string said = error_of([&] { Trainer(device(), g, loss, parameters, options_of(false)); });
                CHECK(said == "Trainer: no checkpoint can have the state \"" + std::string(name) + "\": the name is " +
                                  (*name == '_' ? "reserved" : "not UTF-8"));
                CHECK(g.symbols().empty());
            }
        }
    }

    TEST_CASE("trainer: a step whose loss or norm goes to a tensor is refused before it runs") {
        for (const bool accumulates : {false, true}) {
            for (const char* output : {"loss", "grad_norm"}) {
                if (accumulates && std::string_view(output) == "grad_norm") {
                    continue;  // which is not of the caller's program
                }
                CAPTURE(output);
                Drawn drawn(options_of(accumulates)), never(options_of(accumulates));
                Trainer& trainer = drawn.trainer();
                const auto step_of = [&](Drawn& d) {
                    if (accumulates) {
                        d.upload(3.0f);
                        d.trainer().accumulate();
                    }
                    d.upload(1.0f);
                };
                step_of(drawn);
                step_of(never);
                trainer.program().bind(output, device().make_tensor(trainer.program().shape(output)));
                const std::string refused =
                    "Trainer: the output " + std::string(output) + " is bound to a tensor, and a step reads it";
                if (accumulates) {
                    CHECK(error_of([&] { trainer.accumulate(); }) == refused);
                } else {
                    CHECK(error_of([&] { trainer.take_step(); }) == refused);
                    CHECK(trainer.step() == 0);
                }
                trainer.program().bind(output, {});
                CHECK(trainer.take_step().loss == never.trainer().take_step().loss);
                CHECK(trainer.step() == 1);
                CHECK(drawn.w() == never.w());
            }
        }
    }

    TEST_CASE("trainer: a run that was described in an open scope is saved and goes on") {
        const TemporaryFolder folder;
        const std::filesystem::path file = folder.path() / "training.safetensors";
        for (const bool accumulates : {false, true}) {
            Graph g;
            const Scope scope(g, "model");
            const Value loss = sum(g.weight("w", {4}) * g.input("x", {4}));
            Trainer trainer(device(), g, loss, trainable(g), options_of(accumulates));
            trainer.program().upload("x", std::vector<float>(4, 1.0f));
            trainer.take_step();
            trainer.save(file);
            const std::vector<std::byte> w = trainer.state().read("model.w");
            trainer.take_step();
            trainer.resume(file);
            CHECK(trainer.step() == 1);
            CHECK(trainer.state().read("model.w") == w);
        }
    }

    TEST_CASE("trainer: inputs and outputs that a step adds have names of their own") {
        for (const char* name : {"loss_scale", "loss", "grad_norm", "divisor", "trainer.progress"}) {
            for (const bool accumulates : {false, true}) {
                for (const bool scaled : {false, true}) {
                    CAPTURE(name);
                    Graph g;
                    const Value x = g.input(name, {4}), loss = sum(x * g.weight("w", {4}));
                    TrainerOptions options = options_of(accumulates);
                    options.loss_scale = scaled ? 8.0f : 0.0f;
                    const std::vector<Value> parameters = trainable(g);
                    const std::string said = error_of([&] { Trainer(device(), g, loss, parameters, options); });
                    const std::string_view is = name;
                    const bool taken = is == "loss" || is == "trainer.progress" ||
                                       (is == "loss_scale" && (accumulates || scaled)) ||
                                       (is == "grad_norm" && !accumulates);
                    CHECK(said == (taken ? "Trainer: the graph has something of the name " + std::string(name) +
                                               ", a name of the step's own"
                                         : ""));
                    CHECK(g.symbols().empty() == taken);
                }
            }
        }
        Graph g;
        const Value x = g.input("x", {g.symbol("micro_batch", 4)}), loss = sum(x * g.weight("w", {1}));
        const std::vector<Value> parameters = trainable(g);
        CHECK(error_of([&] { Trainer(device(), g, loss, parameters, options_of(true)); }) ==
              "Trainer: the symbol micro_batch has the maximum 4; the step's own has 1073741824");
        CHECK(error_of([&] { Trainer(device(), g, loss, parameters, options_of(false)); }) == "");
    }

    TEST_CASE("trainer: states that are made beside a parameter have names of their own") {
        for (const bool accumulates : {false, true}) {
            for (const char* name : {"w.moments", "w.gradient"}) {
                CAPTURE(name);
                Graph g;
                const Value w = g.weight("w", {4}), v = g.weight(name, {2, 4});
                const Value loss = sum(v * w * g.input("x", {4}));
                trainable(g);
                const auto said = [&](const std::vector<Value>& parameters, const TrainerOptions& options) {
                    return error_of([&] { Trainer(device(), g, loss, parameters, options); });
                };
                TrainerOptions adam = options_of(accumulates);
                adam.optimizer = AdamW{};
                const std::string taken = "Trainer: the name of a state of its own, " + std::string(name) +
                                          ", is that of something else in the graph";
                if (accumulates || std::string(name) == "w.moments") {
                    CHECK(said({w, v}, adam) == taken);
                    CHECK(said({v, w}, adam) == taken);
                    CHECK(said({w}, adam) == taken);
                }
                const bool no_sums = std::string(name) == "w.moments" || !accumulates;
                CHECK(said({w, v}, options_of(accumulates)) == (no_sums ? "" : taken));
            }
        }
    }

    TEST_CASE("trainer: a loss scale grows up to a bound, and one above stays") {
        const TemporaryFolder folder;
        TrainerOptions options = options_of(false);
        options.loss_scale = 2.0f;
        Drawn drawn(options);
        drawn.upload(0.0f);  // where w is: gradients are 0
        drawn.trainer().save(folder.path() / "first");
        struct Case {
            float before, after;
        };
        for (const Case& c : {Case{2.0f, 4.0f}, Case{0.25f, 0.5f}, Case{0x1p63f, 0x1p64f}, Case{0x1p64f, 0x1p64f},
                              Case{0x1p127f, 0x1p127f}}) {
            CAPTURE(c.before);
            set_progress(folder.path() / "first", folder.path() / "before", 1999, c.before);
            drawn.trainer().resume(folder.path() / "before");
            CHECK(!drawn.trainer().take_step().left_out);
            drawn.trainer().save(folder.path() / "after");
            CHECK(loss_scale_in(folder.path() / "after") == c.after);
        }
    }

    TEST_CASE("trainer: a step is left out where the loss scale can be halved, and else fails") {
        const TemporaryFolder folder;
        for (const float loss_scale : {0.5f, 1.0f, 1.5f, 2.0f}) {
            CAPTURE(loss_scale);
            Graph g;
            const Value x = g.input("x", {4}), loss = sum(g.weight("w", {4}) * x);
            TrainerOptions options = options_of(false);
            options.loss_scale = loss_scale;
            Trainer trainer(device(), g, loss, trainable(g), options);
            trainer.program().upload("x", std::vector<float>(4, 3e38f));
            if (loss_scale > 1) {
                CHECK(trainer.take_step().left_out);
            } else {
                CHECK(error_of([&] { trainer.take_step(); }) ==
                      "Trainer: step 0: the norm of the gradients is not finite; no parameter was updated");
            }
            CHECK(trainer.step() == 0);
            trainer.save(folder.path() / "checkpoint");
            CHECK(loss_scale_in(folder.path() / "checkpoint") == std::min(loss_scale, 1.0f));
        }
    }

    TEST_CASE("trainer: the number of a run within its step is 0 where steps are one run") {
        std::vector<float> losses;
        for (const bool accumulates : {false, true}) {
            Graph g;
            const Dim seed = g.symbol("step", 1 << 30) * Dim(3) + g.symbol("micro_batch", 1 << 30);
            const Value loss = sum(dropout(g.input("x", {kWidth}) + g.weight("w", {kWidth}), 0.5f, seed));
            Trainer trainer(device(), g, loss, trainable(g), options_of(accumulates));
            std::vector<float> x(kWidth);
            for (std::size_t i = 0; i < x.size(); ++i) {
                x[i] = static_cast<float>(i * i);
            }
            trainer.program().upload("x", x);
            losses.push_back(trainer.take_step().loss);
        }
        CHECK(losses[0] == losses[1]);

        Graph g;  // a size of that name
        const Value loss = sum(g.input("x", {g.symbol("micro_batch", 8), 4}) * g.weight("w", {4}));
        Trainer trainer(device(), g, loss, trainable(g), options_of(false));
        trainer.program().upload("x", std::vector<float>(32, 1.0f));
        CHECK(trainer.take_step().grad_norm == doctest::Approx(16.0));
    }

    TEST_CASE("trainer: weights whose squares leave fp32 are refused, and others change nothing") {
        const float none = std::numeric_limits<float>::denorm_min();
        for (const float weight : {1.0f, 1e-9f, 1e9f, 1e-10f, 1e10f, 1e-25f, 1e20f, none}) {
            CAPTURE(weight);
            Graph g;
            const Value loss = sum(g.weight("w", {4}) * g.input("x", {4}));
            TrainerOptions options = options_of(true, 1.0f);
            options.max_norm = 1.0f;
            Trainer trainer(device(), g, loss, trainable(g), options);
            trainer.program().upload("x", std::vector<float>(4, 10.0f));
            if (weight < 1e-9f || weight > 1e9f) {
                for (const std::string& said :
                     {error_of([&] { trainer.accumulate(weight); }), error_of([&] { trainer.take_step(weight); })}) {
                    CHECK(contains(said, "Trainer: a weight of "));
                    CHECK(contains(said, " is outside 1e-9..1e9"));
                }
                continue;
            }
            trainer.accumulate(weight);
            CHECK(trainer.take_step(weight).grad_norm == doctest::Approx(20.0));
            std::vector<float> w(4);
            std::memcpy(w.data(), trainer.state().read("w").data(), sizeof(float) * w.size());
            CHECK(w[0] == doctest::Approx(-0.5));
        }
    }

    TEST_CASE("trainer: numbers that no float of a kernel's holds are refused, of either optimizer") {
        const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
        Graph g;
        const Value w = g.state("w", {4}), gradient = scale(w, 2);
        const Dim step = g.symbol("step", 100);
        const auto said = [&](const auto& optimizer) {
            return error_of([&] { update({w}, {gradient}, optimizer, {.step = step}); });
        };
        for (const double wrong : {nan, inf, 1e300, -1.0}) {
            CAPTURE(wrong);
            CHECK(contains(said(Sgd{.learning_rate = wrong}), "learning_rate = "));
            CHECK(contains(said(Sgd{.weight_decay = wrong}), "weight_decay = "));
            CHECK(contains(said(Sgd{.momentum = wrong}), "momentum = "));
            CHECK(contains(said(AdamW{.eps = wrong}), "eps = "));
        }
        for (const double wrong : {nan, inf, 1e300}) {
            CAPTURE(wrong);
            CHECK(contains(said(Sgd{.momentum = 0.5, .dampening = wrong}), "dampening = "));
        }
        CHECK(said(Sgd{.momentum = 0.5, .dampening = -1}) == "");  // as PyTorch takes it
        CHECK(Schedule{.kind = Schedule::Kind::constant, .warmup = 10}.at(std::numeric_limits<std::int64_t>::max()) ==
              1);
    }
}
