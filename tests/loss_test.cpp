// SPDX-License-Identifier: Apache-2.0
// Drivers that answer late, not at all, or what is not so. The real driver does not hear of the
// failing calls, so validation would complain of our lies: it is off.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "runtime/device/shared_buffer.h"
#include "tests/allocations.h"
#include "tests/bound_recording.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

Program small_program(const Device& device, const CompileOptions& options = {}) {
    Graph g;
    SmallModel::describe(g, 8);
    return device.compile(g, SmallModel::load(device), options);
}

/// The submission of that number from now on reaches the queue without its commands: its fence and
/// semaphore are signalled, and nothing has run.
void drop_submission(fake::Vulkan& vulkan, std::uint64_t nth) {
    const std::uint64_t which = vulkan.vkQueueSubmit.calls + nth;
    vulkan.vkQueueSubmit.instead = [&vulkan, which](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                                    VkFence fence) {
        VkSubmitInfo info = infos[0];
        info.commandBufferCount = vulkan.vkQueueSubmit.calls == which ? 0 : info.commandBufferCount;
        return vulkan.vkQueueSubmit.real(queue, count, &info, fence);
    };
}

constexpr const char* kDidNotRun = "was taken with VK_SUCCESS and did not run";

}  // namespace

TEST_SUITE("faults") {
    TEST_CASE("faults: a wait that times out gives the device up, and leaves what may be in use") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        for (const std::string where : {"run", "upload", "destruction"}) {
            CAPTURE(where);
            const allocations::Lost on_purpose;
            fake::Vulkan vulkan;
            std::uint64_t asked = 0;
            {
                const Device device = Device::create({.wait_seconds = 1.5, .get_instance_proc_addr = vulkan.entry()});
                Insides::core(device).capabilities.unified_memory = where != "upload";
                if (where == "upload") {
                    vulkan.vkWaitForFences.instead = [&](VkDevice, std::uint32_t, const VkFence*, VkBool32,
                                                         std::uint64_t limit) {
                        asked = limit;
                        return VK_TIMEOUT;
                    };
                    CHECK(contains(error_of([&] { SmallModel::load(device); }), "did not finish within 1.5"));
                } else {
                    Program program = small_program(device);
                    CHECK(SmallModel::check(program, 8) == "");
                    const Ticket ticket = program.submit();
                    vulkan.vkWaitForFences.instead = [&](VkDevice, std::uint32_t, const VkFence*, VkBool32,
                                                         std::uint64_t limit) {
                        asked = limit;
                        return VK_TIMEOUT;
                    };
                    CHECK(!ticket.done());  // which gives nothing up
                    if (where == "run") {
                        const std::string said = error_of([&] { program.download("y"); });
                        CHECK(contains(said, "did not finish within 1.5"));
                        CHECK(contains(said, "DeviceOptions::wait_seconds"));
                        CHECK(contains(error_of([&] { program.run(); }), "was lost; make a new Device"));
                        CHECK(contains(error_of([&] { ticket.wait(std::chrono::seconds(1)); }), ""));
                    }
                }
            }
            CHECK(asked == 1'500'000'000);
            CHECK(vulkan.vkQueueWaitIdle.calls == 0);  // which would wait for ever
            CHECK(vulkan.vkDestroyDevice.calls == 0);
            CHECK(vulkan.vkDestroyInstance.calls == 0);
            CHECK(vulkan.allocated_bytes() != 0);
        }
    }

    TEST_CASE("faults: a queue that cannot be waited for is lost, not free") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        {
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            Program program = small_program(device);
            vulkan.vkQueueWaitIdle.fail(VK_ERROR_OUT_OF_HOST_MEMORY);  // and the next one succeeds
            vulkan.vkWaitForFences.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
            CHECK(contains(error_of([&] { SmallModel::check(program, 8); }), "VK_ERROR_OUT_OF_HOST_MEMORY"));
            CHECK(SmallModel::check(program, 8) == "");
            vulkan.vkQueueWaitIdle.fail(VK_ERROR_DEVICE_LOST);
            vulkan.vkWaitForFences.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
            CHECK(contains(error_of([&] { program.run(); }), "VK_ERROR_OUT_OF_HOST_MEMORY"));
            CHECK(contains(error_of([&] { program.run(); }), "was lost; make a new Device"));
            std::vector<float> y(16);
            CHECK(contains(error_of([&] { program.download("y", std::span(y)); }), "was lost; make a new Device"));
        }
        CHECK(vulkan.live_objects() == 0);
        const allocations::Lost on_purpose;
        {
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            Program program = small_program(device);
            vulkan.vkQueueWaitIdle.fail(VK_ERROR_OUT_OF_HOST_MEMORY, 1, 1000);
            vulkan.vkWaitForFences.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
            CHECK(contains(error_of([&] { SmallModel::check(program, 8); }), "VK_ERROR_OUT_OF_HOST_MEMORY"));
            CHECK(contains(error_of([&] { program.run(); }), "was lost; make a new Device"));
        }
        CHECK(vulkan.live_objects() != 0);  // what may still be in use is left
    }

    TEST_CASE("faults: a submission that did not run is told where it is asked for, and always in checked mode") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        for (const std::string asked : {"nobody", "canary", "device", "program"}) {
            CAPTURE(asked);
            fake::Vulkan vulkan;
            {
                const Device device = Device::create({.submit_budget = 1,
                                                      .canary = asked == "canary",
                                                      .checked = asked == "device",
                                                      .get_instance_proc_addr = vulkan.entry()});
                Program program = small_program(device, {.checked = asked == "program"});
                CHECK(SmallModel::check(program, 8) == "");
                const std::size_t submissions = submissions_of(program);
                REQUIRE(submissions > 2);
                for (std::size_t nth = 1; nth <= submissions; ++nth) {
                    CAPTURE(nth);
                    drop_submission(vulkan, nth);
                    const std::string said = error_of([&] { program.run(); });
                    vulkan.vkQueueSubmit.instead = nullptr;
                    if (asked == "nobody") {
                        CHECK(said == "");
                        continue;
                    }
                    CHECK(contains(said, "submission " + std::to_string(nth) + " of " + std::to_string(submissions)));
                    CHECK(contains(said, kDidNotRun));
                    CHECK(contains(error_of([&] { program.download("y"); }), "no run has finished"));
                    CHECK(SmallModel::check(program, 8) == "");
                }
                if (asked == "canary" || asked == "device") {  // copies are asked too
                    Insides::core(device).capabilities.unified_memory = false;
                    drop_submission(vulkan, 1);
                    CHECK(contains(error_of([&] { SmallModel::load(device); }), kDidNotRun));
                    vulkan.vkQueueSubmit.instead = nullptr;
                    SmallModel::load(device);
                }
            }
            CHECK(vulkan.live_objects() == 0);
        }
    }

    TEST_CASE("faults: an input is copied again where the submission that should have copied it did not run") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        {
            const Device device = Device::create({.canary = true, .get_instance_proc_addr = vulkan.entry()});
            Insides::core(device).capabilities.unified_memory = false;
            Graph g;
            g.output("y", scale(g.input("x", {4}), 2));
            Program program = device.compile(g);
            program.upload("x", std::vector<float>(4, 1.0f));
            program.run();
            program.upload("x", std::vector<float>(4, 5.0f));
            drop_submission(vulkan, 1);
            CHECK(contains(error_of([&] { program.run(); }), kDidNotRun));
            vulkan.vkQueueSubmit.instead = nullptr;
            program.run();
            CHECK(program.download("y") == std::vector<float>(4, 10.0f));
            program.upload("x", std::vector<float>(4, 6.0f));
            drop_submission(vulkan, 1);
            CHECK(contains(error_of([&] { program.submit().wait(); }), kDidNotRun));
            vulkan.vkQueueSubmit.instead = nullptr;
            program.run();
            CHECK(program.download("y") == std::vector<float>(4, 12.0f));
            const std::uint64_t copies = vulkan.vkCmdCopyBuffer.calls;
            program.run();
            CHECK(vulkan.vkCmdCopyBuffer.calls == copies + 1);  // that of the output
        }
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("faults: nothing that a run wrote is looked at where the device was given up") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        const allocations::Lost on_purpose;
        fake::Vulkan vulkan;
        const Device device = Device::create({.canary = true, .get_instance_proc_addr = vulkan.entry()});
        Program program = small_program(device);
        CHECK(SmallModel::check(program, 8) == "");
        drop_submission(vulkan, 1);
        const Ticket ticket = program.submit();
        Insides::core(device).given_up = true;
        Insides::core(device).lost = true;
        CHECK(contains(error_of([&] { ticket.wait(); }), "was lost; make a new Device"));
        CHECK(Insides::core(program).runs->dropped == 0);
    }

    TEST_CASE("faults: a ticket tells that its run did not run, and the program can be used again") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        {
            const Device device = Device::create({.canary = true, .get_instance_proc_addr = vulkan.entry()});
            Graph g;
            g.output("y", scale(g.input("x", {4}), 2));
            Program program = device.compile(g, {}, {.name = "dropped"});
            const DeviceTensor y = device.make_tensor({4});
            const auto floats = [&] {
                std::vector<float> out(4);
                y.read(std::as_writable_bytes(std::span(out)));
                return out;
            };
            program.bind("y", y);
            program.upload("x", std::vector<float>(4, 1.0f));
            const Ticket before = program.submit();
            before.wait();
            drop_submission(vulkan, 1);
            const Ticket ticket = program.submit();
            vulkan.vkQueueSubmit.instead = nullptr;
            const std::string said = error_of([&] { ticket.wait(); });
            CHECK(said.starts_with("dropped: submission 1 of 1 "));
            CHECK(contains(said, kDidNotRun));
            CHECK(error_of([&] { ticket.wait(); }) == said);
            CHECK(error_of([&] { ticket.done(); }) == said);
            CHECK(error_of([&] { ticket.wait(std::chrono::seconds(1)); }) == said);
            CHECK(before.done());
            // it was told, and is not told once more by what comes next
            program.upload("x", std::vector<float>(4, 3.0f));
            program.run();
            CHECK(floats() == std::vector<float>(4, 6.0f));
            CHECK(error_of([&] { ticket.done(); }) == said);
            // where a run cannot be submitted, the ticket of the one before stays good
            const Ticket good = program.submit();
            good.wait();
            vulkan.vkQueueSubmit.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
            CHECK(contains(error_of([&] { program.run(); }), "VK_ERROR_OUT_OF_HOST_MEMORY"));
            CHECK(good.done());
            // who does not wait is told too, and outputs are not those of the run before
            program.bind("y", {});
            program.run();
            drop_submission(vulkan, 1);
            const Ticket other = program.submit();
            vulkan.vkQueueSubmit.instead = nullptr;
            CHECK(contains(error_of([&] {
                               while (!other.done()) {
                               }
                           }),
                           kDidNotRun));
            CHECK(
                contains(error_of([&] { program.download("y"); }), "no run has finished yet, or the last one failed"));
        }
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("faults: a list that Vulkan cannot give is an error, one that grew is asked for again") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        const auto failing = [&](auto& function, VkResult result, std::uint64_t nth, std::uint64_t times) {
            function.fail(result, nth, times);
            return error_of([&] { Device::create({.get_instance_proc_addr = vulkan.entry()}); });
        };
        Capabilities whole;
        {
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            whole = device.capabilities();
        }
        const std::uint64_t calls = vulkan.vkEnumerateDeviceExtensionProperties.calls;
        for (std::uint64_t nth = 1; nth <= calls; ++nth) {
            CAPTURE(nth);
            CHECK(contains(failing(vulkan.vkEnumerateDeviceExtensionProperties, VK_ERROR_OUT_OF_HOST_MEMORY, nth, 1),
                           "vkEnumerateDeviceExtensionProperties gave VK_ERROR_OUT_OF_HOST_MEMORY"));
            vulkan.vkEnumerateDeviceExtensionProperties.fail(VK_INCOMPLETE, nth);
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            CHECK(device.capabilities().timeline_semaphore == whole.timeline_semaphore);
            CHECK(device.capabilities().float16 == whole.float16);
            CHECK(device.capabilities().driver == whole.driver);
        }
        CHECK(contains(failing(vulkan.vkEnumerateDeviceExtensionProperties, VK_INCOMPLETE, 1, 1000), "each time"));
        vulkan.vkEnumerateDeviceExtensionProperties.fail(VK_SUCCESS, 1, 0);
        CHECK(contains(failing(vulkan.vkEnumerateInstanceExtensionProperties, VK_ERROR_OUT_OF_HOST_MEMORY, 1, 1),
                       "vkEnumerateInstanceExtensionProperties gave"));
        CHECK(contains(failing(vulkan.vkEnumerateInstanceVersion, VK_ERROR_OUT_OF_HOST_MEMORY, 1, 1),
                       "vkEnumerateInstanceVersion gave"));
        CHECK(failing(vulkan.vkEnumeratePhysicalDevices, VK_INCOMPLETE, 2, 1) == "");
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("faults: shared buffers and tickets remember a lost device") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        for (const std::string where : {"allocation", "ticket"}) {
            CAPTURE(where);
            fake::Vulkan vulkan;
            {
                const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
                if (where == "allocation") {
                    if (!device.capabilities().external_memory_fd) {
                        continue;
                    }
                    const SharedBuffer before = device.make_shared_buffer(256);
                    vulkan.vkAllocateMemory.fail(VK_ERROR_DEVICE_LOST);
                    CHECK(contains(error_of([&] { device.make_shared_buffer(256); }), "VK_ERROR_DEVICE_LOST"));
                    CHECK(contains(error_of([&] { before.export_fd(); }), "was lost; make a new Device"));
                } else {
                    Program program = small_program(device);
                    CHECK(SmallModel::check(program, 8) == "");
                    program.submit();
                    vulkan.vkWaitForFences.fail(VK_ERROR_DEVICE_LOST);
                    // which asks whether slot 0 is free
                    const Status status = program.record(VkCommandBuffer(1), {});
                    CHECK(!status);
                }
                CHECK(contains(error_of([&] { device.make_shared_buffer(256); }), "was lost; make a new Device"));
            }
            CHECK(vulkan.live_objects() == 0);
        }
    }

    TEST_CASE("faults: a slot is in use where the device cannot say that it is free") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        Host host;
        fake::Vulkan vulkan;
        {
            const Device device = Device::borrow(through(host, vulkan));
            Program program = compile_small(device);
            program.allocate();
            program.set("tokens", 3);
            const Bound bound(host, 3);
            for (const VkResult result : {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_DEVICE_LOST}) {
                REQUIRE(SmallModel::check(program, 3) == "");
                const Ticket ticket = program.submit();
                vulkan.vkWaitForFences.fail(result);
                const std::uint64_t sets = vulkan.vkUpdateDescriptorSets.calls;
                const Status status = program.record(host.begin(), bound.recording());
                CHECK(vulkan.vkUpdateDescriptorSets.calls == sets);
                if (result == VK_ERROR_DEVICE_LOST) {
                    CHECK(contains(text(status), "was lost; make a new Device"));
                } else {
                    CHECK(contains(text(status), "slot 0 is in use"));
                    ticket.wait();
                    CHECK(text(program.record(host.begin(), bound.recording())) == "");
                    program.finished(0);
                }
            }
        }
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("faults: nothing is recorded after a loss, or without a command buffer") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        Host host;
        fake::Vulkan vulkan;
        {
            BorrowedDevice handles = through(host, vulkan);
            const Device device = Device::borrow(handles);
            handles.host_submits = true;
            const Device without_queue = Device::borrow(handles);
            Program program = compile_small(device);
            program.allocate();
            const Bound bound(host, 3);
            Segment segment;
            CHECK(contains(text(program.record(nullptr, bound.recording())), "no command buffer was given"));
            REQUIRE(text(program.begin(bound.recording())) == "");
            CHECK(contains(text(program.record_segment(nullptr, 1e9, segment)), "no command buffer was given"));
            CHECK(contains(text(without_queue.record_upload(nullptr, {})), "no command buffer was given"));
            for (const Device* d : {&device, &without_queue}) {
                Insides::core(*d).lost = true;
            }
            // before what is wrong with the program, of which nothing was uploaded
            CHECK(contains(error_of([&] { program.run(); }), "was lost; make a new Device"));
            VkCommandBuffer commands = host.begin();
            const std::uint64_t dispatches = vulkan.vkCmdDispatch.calls + vulkan.vkCmdPipelineBarrier.calls;
            for (const Status& status :
                 {program.record(commands, bound.recording()), program.begin(bound.recording()),
                  program.record_segment(commands, 1e9, segment), without_queue.record_upload(commands, {})}) {
                CHECK(contains(text(status), "was lost; make a new Device"));
                CHECK(status.result == VK_ERROR_DEVICE_LOST);
            }
            CHECK(vulkan.vkCmdDispatch.calls + vulkan.vkCmdPipelineBarrier.calls == dispatches);
        }
        CHECK(vulkan.live_objects() == 0);
    }
}

}  // namespace vkf::test
