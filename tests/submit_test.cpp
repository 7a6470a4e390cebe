// SPDX-License-Identifier: Apache-2.0
// Runs that are submitted and waited for later: tickets, what waits for them, and the timeline
// semaphore of a host.
#include <doctest/doctest.h>

#include <chrono>

#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// y = sum of products: long enough to be under way for a while. "kept" counts runs.
void describe(Graph& g, std::int64_t size) {
    const Value x = g.input("x", {size, size});
    Value y = x;
    for (int i = 0; i < 4; ++i) {
        y = scale(matmul(y, x), 1.0f / static_cast<float>(size));
    }
    g.output("y", y);
    const Value kept = g.state("kept", {1});
    copy_into(kept, kept + g.constant("one", {1}, std::vector<float>{1}));
    g.output("runs", contiguous(kept));
}

std::vector<float> numbers(std::int64_t size, float value) {
    return std::vector<float>(static_cast<std::size_t>(size * size), value);
}

constexpr std::int64_t kSize = 192;

}  // namespace

TEST_SUITE("submit") {
    TEST_CASE("submit: a ticket is done when its run is, and the answers are those of run()") {
        Graph g;
        describe(g, kSize);
        Program program = device().compile(g);
        program.upload("x", numbers(kSize, 0.5f));
        program.run();
        const std::vector<float> want = program.download("y");
        const Ticket ticket = program.submit();
        CHECK(ticket.value() == 2);
        ticket.wait();
        CHECK(ticket.done());
        CHECK(ticket.wait(std::chrono::nanoseconds(0)));
        CHECK(program.download("y") == want);
        CHECK(program.download("runs") == std::vector<float>{2});
        CHECK(Ticket().done());
        CHECK(Ticket().wait(std::chrono::seconds(1)));
        CHECK(Ticket().semaphore() == VkSemaphore{});
    }

    TEST_CASE("submit: what needs the last run waits for it") {
        Graph g;
        describe(g, kSize);
        Program program = device().compile(g, {}, {.profile = true});
        program.upload("x", numbers(kSize, 0.5f));
        const Ticket first = program.submit();
        // The upload waits until the first run has read the old numbers.
        program.upload("x", numbers(kSize, 0.25f));
        CHECK(first.done());
        const Ticket second = program.submit();
        const Ticket third = program.submit();
        CHECK(second.done());
        CHECK(program.download("runs") == std::vector<float>{3});
        CHECK(third.done());
        CHECK(program.download("y")[0] == doctest::Approx(1.0 / 1024));
        program.submit();
        CHECK(program.times().size() == plan_of(program).dispatches.size());
        CHECK(program.download("runs") == std::vector<float>{4});
    }

    TEST_CASE("submit: a wait with a time-out ends with it") {
        Graph g;
        describe(g, 768);
        Program program = device().compile(g);
        program.upload("x", numbers(768, 1.0f));
        const Ticket ticket = program.submit();
        int waits = 0;
        while (!ticket.wait(std::chrono::microseconds(200))) {
            ++waits;
            REQUIRE(waits < 1000000);
        }
        CHECK(waits > 0);
        CHECK(ticket.done());
        CHECK(program.download("y")[0] == doctest::Approx(1));
    }

    TEST_CASE("submit: a program that goes waits, and its tickets are good") {
        Ticket ticket;
        {
            Graph g;
            describe(g, kSize);
            Program program = device().compile(g);
            program.upload("x", numbers(kSize, 0.5f));
            ticket = program.submit();
            Program moved = std::move(program);
            CHECK(moved.download("runs") == std::vector<float>{1});
            ticket = moved.submit();
        }
        CHECK(ticket.done());
        ticket.wait();
    }

    TEST_CASE("submit: a host waits for a timeline semaphore") {
        const DeviceCore& core = Insides::core(device());
        Graph g;
        describe(g, kSize);
        Program program = device().compile(g);
        program.upload("x", numbers(kSize, 0.5f));
        program.run();
        const Ticket ticket = program.submit();
        if (!core.capabilities.timeline_semaphore) {
            cannot_run("timeline semaphores");
            CHECK(ticket.semaphore() == VkSemaphore{});
            return;
        }
        const auto wait = reinterpret_cast<PFN_vkWaitSemaphoresKHR>(
            core.instance->api.vkGetDeviceProcAddr(core.handle, "vkWaitSemaphoresKHR"));
        const auto counter = reinterpret_cast<PFN_vkGetSemaphoreCounterValueKHR>(
            core.instance->api.vkGetDeviceProcAddr(core.handle, "vkGetSemaphoreCounterValueKHR"));
        REQUIRE((wait != nullptr));
        REQUIRE((counter != nullptr));
        const VkSemaphore semaphore = ticket.semaphore();
        const std::uint64_t value = ticket.value();
        CHECK(value == 2);
        VkSemaphoreWaitInfo info{};
        info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
        info.semaphoreCount = 1;
        info.pSemaphores = &semaphore;
        info.pValues = &value;
        REQUIRE(wait(core.handle, &info, ~std::uint64_t{0}) == VK_SUCCESS);
        CHECK(ticket.done());
        std::uint64_t reached = 0;
        REQUIRE(counter(core.handle, semaphore, &reached) == VK_SUCCESS);
        CHECK(reached == 2);
        CHECK(program.download("runs") == std::vector<float>{2});
    }

    TEST_CASE("submit: a program that ends waits for its own work, and not for the host's behind it") {
        fake::Vulkan vulkan;
        const Device own = Device::create({.get_instance_proc_addr = vulkan.entry()});
        if (!own.capabilities().timeline_semaphore) {
            cannot_run("timeline semaphores");
            return;
        }
        for (const bool fails : {false, true}) {
            CAPTURE(fails);
            const std::uint64_t queue = vulkan.vkQueueWaitIdle.calls, semaphore = vulkan.vkWaitSemaphoresKHR.calls;
            {
                Graph g;
                describe(g, kSize);
                Program program = own.compile(g);
                program.upload("x", numbers(kSize, 0.5f));
                program.submit().wait();
                if (fails) {
                    vulkan.vkWaitSemaphoresKHR.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
                }
            }
            CHECK(vulkan.vkWaitSemaphoresKHR.calls == semaphore + 1);
            CHECK(vulkan.vkQueueWaitIdle.calls == queue + (fails ? 1 : 0));
        }
    }

    TEST_CASE("submit: without timeline semaphores all but the semaphore works") {
        const Believed none([](Capabilities& c) { c.timeline_semaphore = false; });
        Graph g;
        describe(g, kSize);
        Program program = device().compile(g);
        program.upload("x", numbers(kSize, 0.5f));
        const Ticket ticket = program.submit();
        CHECK(ticket.semaphore() == VkSemaphore{});
        ticket.wait();
        CHECK(program.download("runs") == std::vector<float>{1});
    }

    TEST_CASE("submit: refuses what run() refuses") {
        Graph g;
        describe(g, kSize);
        Program program = device().compile(g);
        CHECK(contains(error_of([&] { program.submit(); }), "was never uploaded"));
    }
}
