// SPDX-License-Identifier: Apache-2.0
// A program's life: compile, upload, run, download, and what it says to wrong use.
#include "runtime/device/program.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "runtime/device/submit_budget.h"
#include "runtime/graph/edit.h"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include "ops/ops.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

std::vector<float> count_up(std::size_t count, float from = 0) {
    std::vector<float> out(count);
    std::iota(out.begin(), out.end(), from);
    return out;
}

/// Everything that a run after the first may not do.
std::vector<std::uint64_t> creations(const fake::Vulkan& vulkan) {
    return {vulkan.vkAllocateMemory.calls,
            vulkan.vkCreateBuffer.calls,
            vulkan.vkCreateShaderModule.calls,
            vulkan.vkCreateComputePipelines.calls,
            vulkan.vkCreateDescriptorPool.calls,
            vulkan.vkAllocateDescriptorSets.calls,
            vulkan.vkCreateCommandPool.calls,
            vulkan.vkAllocateCommandBuffers.calls,
            vulkan.vkCreateFence.calls,
            vulkan.vkCreateQueryPool.calls,
            vulkan.vkMapMemory.calls};
}

}  // namespace

TEST_SUITE("program") {
    TEST_CASE("program: one serves every length, and a run after the first makes nothing") {
        fake::Vulkan vulkan;
        {
            Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            for (CompileOptions options : {CompileOptions{}, {.profile = true}, {.checked = true}}) {
                CAPTURE(options.profile);
                CAPTURE(options.checked);
                options.name = "a name too long to be kept inside";
                Graph g;
                SmallModel::describe(g, 300);
                Program program = device.compile(g, SmallModel::load(device), options);
                CHECK(SmallModel::check(program, 300) == "");
                const auto made = creations(vulkan);
                for (const std::int64_t tokens : {1, 17, 64, 65, 299, 300, 2}) {
                    CAPTURE(tokens);
                    const std::vector<float> x = SmallModel::input(tokens).floats();
                    {
                        const allocations::Counter counter;
                        program.set("tokens", tokens);
                        program.upload("x", x);
                        program.run();
                        CHECK(counter.count() == 0);
                    }
                    CHECK(program.shape("y") == std::vector<std::int64_t>{tokens, SmallModel::kWidth});
                    CHECK(difference(download(program, "y"), SmallModel::answer(tokens), SmallModel::tolerance()) ==
                          "");
                }
                CHECK(creations(vulkan) == made);
            }
            CHECK(last_words(std::move(device)) == "");
        }
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("program: a length of zero runs and gives nothing") {
        Graph g;
        SmallModel::describe(g, 8);
        Program program = device().compile(g, SmallModel::load(device()));
        program.set("tokens", 0);
        program.upload("x", std::vector<float>{});
        program.run();
        CHECK(program.download("y").empty());
        program.set("tokens", 3);
        CHECK(SmallModel::check(program, 3) == "");
    }

    TEST_CASE("program: any dispatch folds over the group limit") {
        fake::Vulkan vulkan;
        vulkan.change_limits([](VkPhysicalDeviceLimits& limits) {
            std::fill(std::begin(limits.maxComputeWorkGroupCount), std::end(limits.maxComputeWorkGroupCount), 7u);
        });
        Device seven = Device::create({.get_instance_proc_addr = vulkan.entry()});
        REQUIRE(seven.capabilities().max_groups[0] == 7);
        for (const std::int64_t rows : {1, 7, 8, 343, 344, 5000}) {
            CAPTURE(rows);
            Graph g;
            const Value x = g.input("x", {rows, 130});
            g.output("sums", scale(x, 3.0f) + transpose(g.input("t", {130, rows}), 0, 1));
            g.output("weights", softmax(x));
            g.output("norms", layer_norm(x, {}, {}));
            const Tensor data = random_tensor({rows, 130}, 5);
            const auto run = [&](const Device& on) {
                Program program = on.compile(g);
                upload(program, "x", data);
                upload(program, "t", reshape(data, {130, rows}));
                program.run();
                return std::array{download(program, "sums"), download(program, "weights"), download(program, "norms")};
            };
            const auto got = run(seven);
            const auto want = run(device());
            for (std::size_t i = 0; i < got.size(); ++i) {
                CHECK(same_bits(got[i], want[i]));
            }
        }
        CHECK(last_words(std::move(seven)) == "");
    }

    TEST_CASE("program: one without slots, or with too many, is refused") {
        Graph g;
        g.output("y", relu(g.input("x", {4})));
        CHECK(contains(error_of([&] { device().compile(g, {}, {.name = "none", .slots = 0}); }),
                       "none: CompileOptions::slots is 0, and a program has at least 1"));
        for (const std::uint32_t slots : {4097u, ~0u}) {
            CHECK(error_of([&] { device().compile(g, {}, {.name = "many", .slots = slots}).allocate(); }) ==
                  "many: CompileOptions::slots is " + std::to_string(slots) + ", and a program has at most 4096");
        }
        CHECK_NOTHROW(device().compile(g, {}, {.slots = 4096}).allocate());
    }

    TEST_CASE("program: long work is split into bounded submissions, with the same result") {
        Graph g;
        const Value x = g.input("x", {512, 64});
        g.output("y", softmax(matmul(softmax(x), g.input("m", {64, 64})) + x));
        const Tensor data = random_tensor({512, 64}, 3);
        const Tensor matrix = random_tensor({64, 64}, 4);
        const auto run = [&](const Device& on, std::size_t& submissions) {
            Program program = on.compile(g);
            upload(program, "x", data);
            upload(program, "m", matrix);
            program.run();
            const Tensor first = download(program, "y");
            program.run();
            submissions = submissions_of(program);
            CHECK(same_bits(first, download(program, "y")));
            return first;
        };
        std::size_t one = 0;
        std::size_t many = 0;
        std::size_t each = 0;
        const Tensor want = run(device(), one);
        Device bounded = Device::create({.submit_budget = 1e6});
        Device tiny = Device::create({.submit_budget = 1});
        CHECK(same_bits(run(bounded, many), want));
        CHECK(same_bits(run(tiny, each), want));
        CHECK(one == 1);
        CHECK(many > 4);
        CHECK(many < each);
        CHECK(last_words(std::move(bounded)) == "");
        CHECK(last_words(std::move(tiny)) == "");
    }

    TEST_CASE("program: how long runs take tells how much a submission may hold") {
        CHECK(learned_budget(1e10, 4e9, 1, 1) == 1.25e9);  // slower, by eight at most
        CHECK(learned_budget(1e10, 3e10, 1, 1) == 7.5e9);
        CHECK(learned_budget(1e10, 1e12, 0.5, 0.5) == 8e10);  // faster, likewise
        CHECK(learned_budget(8e10, 1e12, 0.5, 0.5) == 5e11);
        CHECK(learned_budget(1e10, 1e6, 0.001, 0.001) == 1e10);  // too short to tell
        CHECK(learned_budget(2e8, 1e6, 1, 1) == 1e8);            // never less
        CHECK(learned_budget(1e9, 4e9, 0, 0.25) == 4e9);         // at most so long: more fits
        CHECK(learned_budget(4e9, 1e9, 0, 1) == 4e9);            // and never that less does
        CHECK(learned_budget(4e9, 4e9, 0.5, 2) == 2e9);          // at least so long: less fits
        CHECK(learned_budget(1e9, 4e9, 0.5, 2) == 1e9);          // between what both say
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        vulkan.vkGetPhysicalDeviceProperties2.instead = [&](VkPhysicalDevice d, VkPhysicalDeviceProperties2* p) {
            vulkan.vkGetPhysicalDeviceProperties2.real(d, p);
            p->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
        };
        // who waits waits for so long, as for a device that is slow
        constexpr std::chrono::milliseconds kSlow(400);
        std::chrono::steady_clock::time_point busy_until;  // for who only asks
        vulkan.vkWaitForFences.instead = [&](VkDevice d, std::uint32_t count, const VkFence* fences, VkBool32 all,
                                             std::uint64_t limit) {
            const VkResult result = vulkan.vkWaitForFences.real(d, count, fences, all, limit);
            if (limit > 0) {
                std::this_thread::sleep_for(kSlow);
            } else if (busy_until > std::chrono::steady_clock::now()) {
                return VK_TIMEOUT;
            }
            return result;
        };
        const DeviceOptions ours{.get_instance_proc_addr = vulkan.entry()};
        const auto budget_after = [](const DeviceOptions& options, auto use) {
            Device device = Device::create(options);
            constexpr std::int64_t kWidth = 256;
            const auto make = [&] {
                Graph g;
                g.output("y", matmul(g.input("a", {kWidth, kWidth}), g.input("b", {kWidth, kWidth})));
                Program program = device.compile(g);
                const std::vector<float> ones(static_cast<std::size_t>(kWidth * kWidth), 1.0f);
                program.upload("a", ones);
                program.upload("b", ones);
                return program;
            };
            Program program = make(), another = make();
            use(device, program, another);
            return Insides::core(device).submit_budget.load();
        };
        const auto run = [](Device&, Program& program, Program&) { program.run(); };
        const auto wait = [](Device&, Program& program, Program&) { program.submit().wait(); };
        CHECK(budget_after(ours, run) == kFirstSubmitBudget / 8);
        CHECK(budget_after(ours, wait) == kFirstSubmitBudget / 8);
        CHECK(budget_after({.submit_budget = 1e9, .get_instance_proc_addr = vulkan.entry()}, run) == 1e9);
        // who asks again and again sees when it ends, and of two it is known when the second began
        const auto ask = [&](Device&, Program& program, Program&) {
            const Ticket ticket = program.submit();
            busy_until = std::chrono::steady_clock::now() + kSlow;
            while (!ticket.done()) {
            }
        };
        const auto both = [](Device&, Program& program, Program& another) {
            const Ticket first = program.submit(), second = another.submit();
            first.wait();
            second.wait();
        };
        CHECK(budget_after(ours, ask) < kFirstSubmitBudget);
        CHECK(budget_after(ours, both) == 1e8);  // after two lessons the least there is
        // a run that fails hinders none behind it from telling, and what the host does before it
        // submits is none of the device's time
        const auto fail = [&](Device&, Program& program, Program& another) {
            vulkan.vkQueueSubmit.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
            CHECK(contains(error_of([&] { program.run(); }), "vkQueueSubmit"));
            another.run();
        };
        const auto fail_behind_a_part = [&](Device& device, Program& program, Program& another) {
            DeviceCore& core = Insides::core(device);
            core.submit_budget = 1e7;
            int submissions = 0;
            vulkan.vkQueueSubmit.instead = [&](VkQueue q, std::uint32_t n, const VkSubmitInfo* infos, VkFence fence) {
                return ++submissions == 2 ? VK_ERROR_OUT_OF_HOST_MEMORY : vulkan.vkQueueSubmit.real(q, n, infos, fence);
            };
            CHECK(contains(error_of([&] { program.run(); }), "vkQueueSubmit"));
            vulkan.vkQueueSubmit.instead = nullptr;
            CHECK(submissions == 2);
            core.submit_budget = kFirstSubmitBudget;
            another.run();
        };
        const auto record = [&](Device&, Program& program, Program&) {
            std::chrono::steady_clock::time_point recorded;
            vulkan.vkEndCommandBuffer.instead = [&](VkCommandBuffer commands) {
                recorded = std::chrono::steady_clock::now();
                return vulkan.vkEndCommandBuffer.real(commands);
            };
            program.submit().wait();
            vulkan.vkEndCommandBuffer.instead = nullptr;
            CHECK(recorded > std::chrono::steady_clock::time_point());
            CHECK(Insides::core(program).runs->timed.first.before >= recorded);
        };
        CHECK(budget_after(ours, fail) == kFirstSubmitBudget / 8);
        CHECK(budget_after(ours, fail_behind_a_part) == kFirstSubmitBudget / 8);
        CHECK(budget_after(ours, record) == kFirstSubmitBudget / 8);
        // of these nobody knows when they ended, or when they began
        const auto late = [&](Device& device, Program& program, Program&) {
            const Ticket ticket = program.submit();
            Insides::core(device).wait_idle();
            std::this_thread::sleep_for(kSlow);
            while (!ticket.done()) {
            }
        };
        const auto run_behind = [](Device&, Program& program, Program& another) {
            const Ticket first = another.submit();
            program.run();
            first.wait();
        };
        CHECK(budget_after(ours, late) == kFirstSubmitBudget);
        CHECK(budget_after(ours, run_behind) == kFirstSubmitBudget);
        // a host's own work may have had the queue
        const Device device = Device::create(ours);
        DeviceCore& core = Insides::core(device);
        core.owned = false;
        core.submit_budget = 4 * kFirstSubmitBudget;
        for (int i = 0; i < 2; ++i) {
            core.learn_budget(1e9, 10, 10);
            CHECK(core.submit_budget == kFirstSubmitBudget);
        }
        core.owned = true;
    }

    TEST_CASE("program: weights that do not fit the graph are named when it is compiled") {
        Graph g;
        SmallModel::describe(g, 4);
        const std::vector<float> w = count_up(24 * 24);
        const std::vector<float> b = count_up(24);
        const auto compile = [&](const std::vector<HostTensor>& tensors) {
            return error_of([&] { device().compile(g, device().load(tensors)); });
        };
        CHECK(compile({host_tensor("w", {24, 24}, w)}) == "weight b: is missing; the graph wants it as (24)");
        CHECK(error_of([&] { device().compile(g); }).find("is missing") != std::string::npos);
        CHECK(compile({host_tensor("w", {576}, w), host_tensor("b", {24}, b)}) ==
              "weight w: is (576) F32, the graph wants (24, 24) F32");
        HostTensor integers = host_tensor("b", {24}, b);
        integers.dtype = DType::i32;
        CHECK(compile({host_tensor("w", {24, 24}, w), integers}) == "weight b: is (24) I32, the graph wants (24) F32");
        CHECK(
            compile({host_tensor("w", {24, 24}, w), host_tensor("b", {24}, b), host_tensor("more", {24}, b)}).empty());
        CHECK(contains(error_of([&] {
                           device().load(std::vector{host_tensor("w", {24, 25}, w)});
                       }),
                       "2304 bytes, its shape says 2400"));
        CHECK(contains(error_of([&] { device().load(std::vector{host_tensor("w", {-1, 25}, w)}); }), "weight w"));
        CHECK(error_of([&] {
                  device().load(std::vector{host_tensor("b", {24}, b), host_tensor("b", {24}, b)});
              }) == "weight b: is given twice");

        Device other = Device::create();
        CHECK(contains(error_of([&] { device().compile(g, SmallModel::load(other)); }), "of another device"));
        CHECK(last_words(std::move(other)) == "");
    }

    TEST_CASE("program: wrong use of inputs, outputs and sizes is an error, and the next right use works") {
        Graph g;
        SmallModel::describe(g, 16);
        Program program = device().compile(g, SmallModel::load(device()), {.name = "small"});
        CHECK(error_of([&] { program.download("y"); }) ==
              "small: output y: no run has finished yet, or the last one failed");
        CHECK(error_of([&] { program.run(); }) == "small: input x: was never uploaded");
        CHECK(contains(error_of([&] { program.upload("z", count_up(3)); }), "no input \"z\"; it has: x"));
        CHECK(contains(error_of([&] { program.upload("y", count_up(3)); }), "no input \"y\""));
        CHECK(error_of([&] { program.upload("x", count_up(5)); }) ==
              "small: input x: is (16, 24) F32, 5 elements of F32 were given");
        CHECK(contains(error_of([&] { program.upload("x", std::vector<std::int32_t>(16 * 24)); }),
                       "384 elements of I32"));
        CHECK(contains(error_of([&] { program.set("token", 1); }), "no size \"token\"; it has: tokens"));
        CHECK(error_of([&] { program.set("tokens", 17); }) == "small: size tokens = 17 is outside 0..16");
        CHECK(contains(error_of([&] { program.set("tokens", -1); }), "outside 0..16"));
        program.upload("x", count_up(16 * 24));
        program.set("tokens", 3);
        CHECK(error_of([&] { program.run(); }) ==
              "small: input x: 384 elements were uploaded, at the sizes set now it has 72");
        CHECK(SmallModel::check(program, 3) == "");
        CHECK(contains(error_of([&] { program.download("x"); }), "no output \"x\"; it has: y"));
        CHECK(contains(error_of([&] { program.download_i32("y"); }), "holds F32, not I32"));
        const std::vector<float> y = program.download("y");
        std::vector<float> again(y.size());
        program.download("y", std::span(again));
        CHECK(again == y);
        CHECK(contains(error_of([&] { program.download("y", std::span(again).first(1)); }), "there is room for 1"));
        CHECK(contains(error_of([&] { program.shape("w"); }), "no input or output \"w\""));
        program.set("tokens", 5);
        // The output is of the last run, not of the sizes set since.
        CHECK(program.download("y").size() == 3 * 24);
        program = device().compile(g, SmallModel::load(device()));
        CHECK(SmallModel::check(program, 16) == "");
    }

    TEST_CASE("program: as many elements in another shape are not what was uploaded") {
        Graph g;
        const Value x = g.input("x", {g.symbol("rows", 8), g.symbol("columns", 8)});
        g.output("y", scale(x, 2.0f));
        Program program = device().compile(g);
        program.set("rows", 2);
        program.set("columns", 6);
        program.upload("x", count_up(12));
        program.run();
        program.set("rows", 4);
        program.set("columns", 3);
        CHECK(contains(error_of([&] { program.run(); }), "input x: was uploaded in another shape"));
        program.upload("x", count_up(12));
        CHECK_NOTHROW(program.run());
    }

    TEST_CASE("program: a constant that is made when it is compiled costs nothing before") {
        struct Twos final : ConstantData {
            mutable int made = 0;
            std::size_t count = 3;
            std::vector<std::byte> bytes() const override {
                ++made;
                const std::vector<float> numbers(count, 2.0f);
                const std::span<const std::byte> bytes = std::as_bytes(std::span(numbers));
                return {bytes.begin(), bytes.end()};
            }
            bool same_as(const ConstantData& other) const override { return &other == this; }
        };
        const auto twos = std::make_shared<Twos>();
        Graph g;
        const Value twice = GraphEdit::constant(g, "table", {3}, twos);
        CHECK(GraphEdit::constant(g, "table", {3}, twos).id() == twice.id());
        g.output("y", g.input("x", {3}) * twice);
        CHECK(twos->made == 0);
        {
            Program program = device().compile(g, {});
            program.upload("x", std::vector<float>{1, 2, 3});
            for (int i = 0; i < 2; ++i) {
                program.run();
                CHECK(program.download("y") == std::vector<float>{2, 4, 6});
            }
            CHECK(twos->made == 1);
        }
        twos->count = 2;
        CHECK(error_of([&] {
                  Program program = device().compile(g, {});
                  program.allocate();
              }) == "Graph: constant table of 12 bytes was made with 8");
    }

    TEST_CASE("program: sizes that are negative are refused where their product is not, too") {
        Graph g;
        const Dim rows = g.symbol("rows", 8), columns = g.symbol("columns", 8);
        const Value x = g.input("x", {rows - 4, columns - 4});
        g.output("y", scale(reshape(x, {(rows - 4) * (columns - 4)}), 2));
        Program program = device().compile(g);
        const auto run = [&](std::int64_t r, std::int64_t c) {
            program.set("rows", r);
            program.set("columns", c);
            const std::int64_t elements = std::max<std::int64_t>(0, r - 4) * std::max<std::int64_t>(0, c - 4);
            program.upload("x", count_up(static_cast<std::size_t>(elements)));
            program.run();
            return program.download("y");
        };
        CHECK(error_of([&] { run(1, 2); }) == "program: x: size rows-4 is negative at the sizes given");
        CHECK(error_of([&] { run(1, 5); }) == "program: x: size rows-4 is negative at the sizes given");
        CHECK(error_of([&] { run(5, 3); }) == "program: x: size columns-4 is negative at the sizes given");
        CHECK(run(6, 7).size() == 6);
        CHECK(run(4, 7).empty());
        Graph unused;
        const Value y = unused.input("y", {unused.symbol("n", 8), 4});
        broadcast_to(slice(y, 0, 0, 1), {y.size(0) - 2, 4});  // and nobody uses it
        unused.output("z", scale(y, 2));
        Program none = device().compile(unused);
        none.set("n", 1);
        none.upload("y", count_up(4));
        none.run();
        CHECK(none.download("z").size() == 4);
        CHECK(contains(error_of([&] { none.upload("x", count_up(1)); }), "no input \"x\"; it has: y"));
        Graph constant;
        constant.output("one", scale(constant.constant("table", {1}, std::vector<float>{1}), 2));
        Program without = device().compile(constant);
        CHECK(contains(error_of([&] { without.upload("x", count_up(1)); }), "no input \"x\"; it has: none"));
        CHECK(contains(error_of([&] { program.shape("a"); }), "no input or output \"a\"; it has: x, y"));
    }

    TEST_CASE("program: sizes that do not fit are told with its name, and leave the last run's outputs") {
        Graph g;
        const Dim start = g.symbol("start", 8), n = g.symbol("n", 8);
        g.output("y", scale(slice(g.input("x", {8}), 0, start, n), 2));
        Program program = device().compile(g, {}, {.name = "cut"});
        program.set("start", 0);
        program.set("n", 4);
        program.upload("x", std::vector<float>(8, 1.0f));
        program.run();
        program.set("start", 7);
        const std::string said = error_of([&] { program.run(); });
        CHECK(said.starts_with("cut: "));
        CHECK(said.ends_with(": 11 is more than 8 at the sizes given"));
        CHECK(said.find("cut: ", 1) == std::string::npos);
        CHECK(error_of([&] { program.submit(); }) == said);
        CHECK(error_of([&] { program.cost(); }) == said);
        const auto where = [](const auto& refused) {
            try {
                refused();
            } catch (const Error& e) {
                return e.where();
            }
            return std::string("nothing was refused");
        };
        CHECK(where([&] { program.run(); }) == "cut");
        CHECK(where([&] { program.cost(); }) == "cut");
        CHECK(program.download("y") == std::vector<float>(4, 2.0f));
    }

    TEST_CASE("program: a slice without elements at the end of a tensor is bound all the same") {
        Graph g;
        const Dim n = g.symbol("n", 4);
        const Value x = g.input("x", {4, 16});
        const Value w = g.input("w", {4, 16});
        g.output("y", concat({slice(x, 0, 4, n), slice(w, 0, 4, n), x}, 0));
        Program program = device().compile(g);
        program.set("n", 0);
        program.upload("x", count_up(64));
        program.upload("w", count_up(64));
        program.run();
        CHECK(program.download("y") == count_up(64));
    }

    TEST_CASE("program: a graph without sizes, weights or inputs runs") {
        Graph g;
        const std::vector<float> table = count_up(6);
        g.output("y", scale(g.constant("table", {2, 3}, table), 2.0f));
        Program program = device().compile(g);
        CHECK(contains(error_of([&] { program.set("tokens", 1); }), "it has: none"));
        program.run();
        CHECK(program.download("y") == std::vector<float>{0, 2, 4, 6, 8, 10});
    }

    TEST_CASE("program: one that was moved from throws at every use, and can be assigned to") {
        Graph g;
        SmallModel::describe(g, 4);
        const Weights weights = SmallModel::load(device());
        Program gone = device().compile(g, weights);
        Program program = std::move(gone);
        const TemporaryFolder folder;
        using Use = std::function<void(Program&)>;
        for (const Use& use : {
                 Use([](Program& p) { p.memory(); }),
                 Use([](Program& p) { p.allocate(); }),
                 Use([](Program& p) { p.set("tokens", 3); }),
                 Use([](Program& p) { p.upload("x", std::vector<float>(96)); }),
                 Use([](Program& p) { p.upload("x", std::vector<std::int32_t>(96)); }),
                 Use([](Program& p) { p.run(); }),
                 Use([](Program& p) { p.download("y"); }),
                 Use([](Program& p) { p.download_i32("y"); }),
                 Use([](Program& p) { p.shape("x"); }),
                 Use([](Program& p) { p.explain(); }),
                 Use([](Program& p) { p.dot(); }),
                 Use([](Program& p) { p.times(); }),
                 Use([](Program& p) { p.time_table(); }),
                 Use([&](Program& p) { p.write_trace(folder.path() / "trace.json"); }),
                 Use([](Program& p) { submissions_of(p); }),
                 Use([](Program& p) { plan_of(p); }),
             }) {
            CHECK(contains(error_of([&] { use(gone); }), "a program was used that had been moved from"));
        }
        const Status status = gone.record({}, {}, {});
        CHECK(status.result == Status::kWrongUse);
        CHECK(contains(status.message.data(), "moved from"));
        CHECK(SmallModel::check(program, 4) == "");
        gone = std::move(program);
        CHECK(SmallModel::check(gone, 4) == "");
    }
}

}  // namespace vkf::test
