// SPDX-License-Identifier: Apache-2.0
// What a program tells of itself: explain(), dot(), times, the trace.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ops/ops.h"
#include "runtime/base/map_file.h"
#include "runtime/compile/plan.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++found;
    }
    return found;
}

/// A graph with everything that has a place in the reports, and a name that wants quoting.
void describe(Graph& g) {
    const Dim tokens = g.symbol("tokens", 32);
    const Scope scope(g, "layer \"0\"");
    const Value x = g.input("x", {tokens, 16});
    const Value kept = copy_into(slice(g.state("cache", {64, 16}), 0, 8, tokens), scale(x, 2.0f));
    g.output("y", softmax(layer_norm(kept + x, {}, {}) * g.constant("table", {1}, std::vector<float>{0.5f})));
}

Program compiled(const Device& device, bool profile) {
    Graph g;
    describe(g);
    return device.compile(g, {}, {.name = "shown", .profile = profile});
}

void run(Program& program, std::int64_t tokens) {
    program.set("tokens", tokens);
    upload(program, "x", random_tensor({tokens, 16}));
    program.run();
}

}  // namespace

TEST_SUITE("profile") {
    TEST_CASE("profile: explain() names device, memory, every dispatch, its kernel and why") {
        const Program program = compiled(device(), false);
        const std::string said = program.explain();
        CAPTURE(said);
        const Plan& plan = plan_of(program);
        CHECK(contains(said, "shown on " + device().capabilities().name));
        CHECK(contains(said, "minimum profile") == device().capabilities().minimum_profile);
        CHECK(contains(
            said, std::to_string(plan.dispatches.size()) + " dispatches in " + std::to_string(plan.steps) + " steps"));
        const MemorySizes& m = program.memory();
        CHECK(contains(said, "state " + std::to_string(m.state) + ","));
        CHECK(contains(said, "constants " + std::to_string(m.constants) + ","));
        CHECK(contains(said, "scratch " + std::to_string(m.scratch) + " "));
        CHECK(contains(said, "mirrors " + std::to_string(m.mirrors) + " bytes"));
        for (const PlannedDispatch& d : plan.dispatches) {
            CHECK(contains(said, plan.nodes[d.dispatch.node].label));
            for (const Kernel& kernel : d.dispatch.kernels) {
                CHECK(!kernel.why.empty());
                CHECK(contains(said, std::string(kernel.shader->name) + "<"));
                CHECK(contains(said, ">: " + kernel.why));
            }
        }
        CHECK(contains(said, "(tokens, 16)"));
        CHECK(contains(said, "layer \"0\".cache"));
        CHECK(contains(said, "@"));
    }

    TEST_CASE("profile: dot() draws every dispatch, with shapes and arena offsets") {
        const Program program = compiled(device(), false);
        const std::string drawn = program.dot();
        CAPTURE(drawn);
        const Plan& plan = plan_of(program);
        CHECK(drawn.starts_with("digraph program {"));
        CHECK(drawn.ends_with("}\n"));
        std::size_t edges = 0;
        for (std::size_t i = 0; i < plan.dispatches.size(); ++i) {
            const PlannedDispatch& d = plan.dispatches[i];
            CHECK(contains(drawn, "  d" + std::to_string(i) + " [label="));
            for (const Binding& b : d.dispatch.bindings) {
                edges += b.access == Access::read_write ? 2 : 1;
            }
        }
        CHECK(count(drawn, " -> ") == edges + plan.copies.size());
        CHECK(contains(drawn, "x\\n(tokens, 16)"));
        CHECK(contains(drawn, "cache\\n(64, 16)"));
        CHECK(contains(drawn, "layer \\\"0\\\""));  // quoted
        for (StorageId s = 0; s < plan.storages.size(); ++s) {
            if (plan.arena_offset[s] != Plan::kNotInArena) {
                CHECK(contains(
                    drawn, "@" + std::to_string(plan.arena_offset[s]) + " +" + std::to_string(plan.storage_bytes[s])));
            }
        }
    }

    TEST_CASE("profile: times are those of the dispatches, in order, within the run") {
        if (device().capabilities().timestamp_period == 0) {
            cannot_run("timestamps");
            return;
        }
        Program program = compiled(device(), true);
        for (const std::int64_t tokens : {32, 1, 7}) {
            const auto start = std::chrono::steady_clock::now();
            run(program, tokens);
            const double wall =
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
            const std::vector<DispatchTime>& times = program.times();
            REQUIRE(times.size() == plan_of(program).dispatches.size());
            CHECK(times.front().start_ms == 0);
            for (std::size_t i = 0; i < times.size(); ++i) {
                const Dispatch& dispatch = plan_of(program).dispatches[i].dispatch;
                CHECK(times[i].label == plan_of(program).nodes[dispatch.node].label);
                CHECK(times[i].kernel == dispatch.kernels.front().shader->name);
                CHECK(times[i].ms >= 0);
                CHECK(times[i].start_ms >= (i == 0 ? 0 : times[i - 1].start_ms));
                CHECK(times[i].start_ms + times[i].ms <= wall);
                CHECK(times[i].bytes >= static_cast<double>(tokens * 16 * 4));
            }
        }
        const std::string table = program.time_table();
        CAPTURE(table);
        CHECK(contains(table, "GFLOP/s"));
        CHECK(contains(table, "GB/s"));
        CHECK(contains(table, "ms in all"));
        CHECK(count(table, "\n") == program.times().size() + 2);
    }

    TEST_CASE("profile: the trace is JSON that a viewer takes") {
        const TemporaryFolder folder;
        Program program = compiled(device(), true);
        run(program, 5);
        const std::filesystem::path path = folder.path() / "trace.json";
        program.write_trace(path);
        std::ifstream file(path);
        const nlohmann::json trace = nlohmann::json::parse(file);
        const auto& events = trace.at("traceEvents");
        REQUIRE(events.size() == program.times().size() + 1);
        CHECK(events[0].at("ph") == "M");
        CHECK(events[0].at("args").at("name") == device().capabilities().name);
        for (std::size_t i = 0; i < program.times().size(); ++i) {
            const auto& event = events[i + 1];
            const DispatchTime& time = program.times()[i];
            CHECK(event.at("ph") == "X");
            CHECK(event.at("name") == time.label);
            CHECK(event.at("args").at("kernel") == time.kernel);
            CHECK(event.at("ts").get<double>() == doctest::Approx(time.start_ms * 1000).epsilon(0.01));
            CHECK(event.at("dur").get<double>() == doctest::Approx(time.ms * 1000).epsilon(0.01));
        }
        CHECK(contains(error_of([&] { program.write_trace(folder.path() / "no such folder" / "trace.json"); }),
                       "could not be written"));
    }

    TEST_CASE("profile: the trace is JSON whatever the host's locale") {
        const std::string before = std::setlocale(LC_NUMERIC, nullptr);
        bool comma = false;
        for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8", "de_DE", "German"}) {
            comma = comma || (std::setlocale(LC_NUMERIC, name) && *std::localeconv()->decimal_point == ',');
        }
        if (!comma) {
            std::setlocale(LC_NUMERIC, before.c_str());
            cannot_run("a locale that writes a comma");
            return;
        }
        const TemporaryFolder folder;
        Program program = compiled(device(), true);
        run(program, 5);
        program.write_trace(folder.path() / "trace.json");
        std::setlocale(LC_NUMERIC, before.c_str());
        std::ifstream file(folder.path() / "trace.json");
        CHECK(nlohmann::json::parse(file).at("traceEvents").size() == program.times().size() + 1);
    }

    TEST_CASE("profile: a run that fails has no times, and leaves a trace that was written") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        const TemporaryFolder folder;
        const std::filesystem::path path = folder.path() / "trace.json";
        fake::Vulkan vulkan;
        const Device own = Device::create({.canary = true, .get_instance_proc_addr = vulkan.entry()});
        Program program = compiled(own, true);
        run(program, 5);
        program.write_trace(path);
        const std::string before = file_text(path);
        CHECK(program.times().empty() == (own.capabilities().timestamp_period == 0));
        program.set("tokens", 3);
        upload(program, "x", random_tensor({3, 16}));
        vulkan.vkQueueSubmit.instead = [&](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                           VkFence fence) {
            VkSubmitInfo info = infos[0];
            info.commandBufferCount = 0;
            return vulkan.vkQueueSubmit.real(queue, count, &info, fence);
        };
        program.submit();
        vulkan.vkQueueSubmit.instead = nullptr;
        CHECK(contains(error_of([&] { program.write_trace(path); }), "did not run"));
        CHECK(file_text(path) == before);
        CHECK(program.times().empty());
        run(program, 5);
        CHECK(program.times().empty() == (own.capabilities().timestamp_period == 0));
    }

    TEST_CASE("profile: without it, or without timestamps, a program runs all the same") {
        Program program = compiled(device(), false);
        run(program, 3);
        CHECK(program.times().empty());
        Program profiled = compiled(device(), true);
        CHECK(profiled.times().empty());  // before it has run
        run(profiled, 3);
        run(program, 3);
        CHECK(same_bits(download(profiled, "y"), download(program, "y")));
    }

    TEST_CASE("profile: of a timestamp only the bits count that the queue's family has") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        std::uint32_t bits = 36;
        vulkan.vkGetPhysicalDeviceQueueFamilyProperties.instead = [&](VkPhysicalDevice physical, std::uint32_t* count,
                                                                      VkQueueFamilyProperties* families) {
            vulkan.vkGetPhysicalDeviceQueueFamilyProperties.real(physical, count, families);
            for (std::uint32_t i = 0; families && i < *count; ++i) {
                families[i].timestampValidBits = bits;
            }
        };
        vulkan.vkGetQueryPoolResults.instead = [](VkDevice, VkQueryPool, std::uint32_t, std::uint32_t count,
                                                  std::size_t, void* out, VkDeviceSize, VkQueryResultFlags) {
            for (std::uint64_t i = 0; i < count; ++i) {  // a clock near its end, garbage above it
                const std::uint64_t tick = ((std::uint64_t{1} << 36) - 25 + 10 * i) % (std::uint64_t{1} << 36);
                static_cast<std::uint64_t*>(out)[i] = tick | (i * 0x9e3779b97f4a7c15u) << 36;
            }
            return VK_SUCCESS;
        };
        vulkan.change_limits([](VkPhysicalDeviceLimits& limits) { limits.timestampPeriod = 1e6f; });
        {
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            CHECK(device.capabilities().timestamp_bits == 36);
            Program program = compiled(device, true);
            run(program, 3);
            REQUIRE(program.times().size() > 2);
            for (std::size_t i = 0; i < program.times().size(); ++i) {
                CHECK(program.times()[i].start_ms == doctest::Approx(20.0 * static_cast<double>(i)));
                CHECK(program.times()[i].ms == doctest::Approx(10.0));
            }
        }
        bits = 0;
        {
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            const std::uint64_t pools = vulkan.vkCreateQueryPool.calls;
            Program program = compiled(device, true);
            run(program, 3);
            CHECK(device.capabilities().timestamp_period == 0);
            CHECK(vulkan.vkCreateQueryPool.calls == pools);
            CHECK(program.times().empty());
        }
    }
}

}  // namespace vkf::test
