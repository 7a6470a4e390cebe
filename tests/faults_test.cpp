// SPDX-License-Identifier: Apache-2.0
// Calls that fail: each is an error, nothing leaks, and whoever tries again succeeds; a lost device
// stays lost and can be destroyed. The real driver does not hear of the failing calls, so
// validation would complain of our lies: it is off.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

/// However often it is asked.
void check_lost(const Ticket& ticket) {
    for (int i = 0; i < 2; ++i) {
        CHECK(contains(error_of([&] { ticket.done(); }), "was lost; make a new Device"));
        CHECK(contains(error_of([&] { ticket.wait(std::chrono::milliseconds(1)); }), "was lost; make a new Device"));
        CHECK(contains(error_of([&] { ticket.wait(); }), "was lost; make a new Device"));
    }
}

/// Device, weights, a program with a constant and a state, and two runs of it. Kernels that compile
/// quickly.
void whole_life(const fake::Vulkan& vulkan, const std::function<void(const std::function<void()>&)>& attempt) {
    std::optional<Device> device;
    attempt([&] {
        device =
            Device::create({.minimum_profile = true, .staging_bytes = 1000, .get_instance_proc_addr = vulkan.entry()});
    });
    REQUIRE(device);
    const std::vector<float> ones(300, 1.0f);
    Weights weights;
    attempt([&] {
        weights = device->load(std::vector{HostTensor{"w", DType::f32, {300}, std::as_bytes(std::span(ones))}});
    });
    Graph g;
    const Value sum = g.input("x", {300}) + g.weight("w", {300});
    g.output("y", mul(copy_into(g.state("cache", {300}), sum), g.constant("half", {1}, std::vector<float>{0.5f})));
    std::optional<Program> program;
    attempt([&] { program = device->compile(g, weights, {.profile = true}); });
    REQUIRE(program);
    attempt([&] { program->allocate(); });
    attempt([&] { program->upload("x", ones); });
    for (int i = 0; i < 2; ++i) {
        attempt([&] { program->run(); });
        CHECK(program->download("y") == ones);
    }
}

}  // namespace

TEST_SUITE("faults") {
    TEST_CASE("faults: each call that fails is an error, nothing leaks, and the next attempt succeeds") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        using Fail = std::function<void(fake::Vulkan&, std::uint64_t)>;
        using Count = std::function<std::uint64_t(fake::Vulkan&)>;
        struct Fault {
            std::string function;
            Fail fail;
            Count count;
        };
#define FAULT(function, result)                                                                                       \
    Fault {                                                                                                           \
#function, [](fake::Vulkan & v,                                                                               \
                      std::uint64_t nth) { v.function.fail(result, nth); }, [](fake::Vulkan &                         \
                                                                               v) { return v.function.calls.load(); } \
    }
        const Fault faults[] = {
            FAULT(vkCreateInstance, VK_ERROR_INITIALIZATION_FAILED),
            FAULT(vkEnumeratePhysicalDevices, VK_ERROR_INITIALIZATION_FAILED),
            FAULT(vkCreateDevice, VK_ERROR_FEATURE_NOT_PRESENT),
            FAULT(vkCreateBuffer, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkCreateBufferView, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkAllocateMemory, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkBindBufferMemory, VK_ERROR_OUT_OF_HOST_MEMORY),
            FAULT(vkMapMemory, VK_ERROR_MEMORY_MAP_FAILED),
            FAULT(vkCreateShaderModule, VK_ERROR_OUT_OF_HOST_MEMORY),
            FAULT(vkCreateDescriptorSetLayout, VK_ERROR_OUT_OF_HOST_MEMORY),
            FAULT(vkCreatePipelineLayout, VK_ERROR_OUT_OF_HOST_MEMORY),
            FAULT(vkCreateComputePipelines, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkCreateDescriptorPool, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkAllocateDescriptorSets, VK_ERROR_OUT_OF_POOL_MEMORY),
            FAULT(vkCreateCommandPool, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkAllocateCommandBuffers, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkBeginCommandBuffer, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkEndCommandBuffer, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkCreateQueryPool, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkGetQueryPoolResults, VK_ERROR_OUT_OF_HOST_MEMORY),
            FAULT(vkCreateFence, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkResetFences, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkQueueSubmit, VK_ERROR_OUT_OF_DEVICE_MEMORY),
            FAULT(vkWaitForFences, VK_ERROR_OUT_OF_HOST_MEMORY),
        };
#undef FAULT
        for (const Fault& fault : faults) {
            CAPTURE(fault.function);
            std::uint64_t calls = 0;  // of the function in a life without faults
            for (int attempt = 0; attempt <= 4; ++attempt) {
                const std::uint64_t nth = attempt < 4 ? static_cast<std::uint64_t>(attempt) : calls;
                if (attempt > 0 && nth > calls) {
                    continue;
                }
                CAPTURE(nth);
                fake::Vulkan vulkan;
                if (nth > 0) {
                    fault.fail(vulkan, nth);
                }
                int errors = 0;
                whole_life(vulkan, [&](const std::function<void()>& step) {
                    const std::string said = error_of(step);
                    if (!said.empty()) {
                        ++errors;
                        CHECK(contains(said, "VK_ERROR"));
                        step();
                    }
                });
                // what one type of memory has no room for may go into another, and another kernel
                // stands in for the one that is not built
                const bool elsewhere =
                    fault.function == "vkCreateShaderModule" || fault.function == "vkCreateComputePipelines" ||
                    (fault.function == "vkAllocateMemory" && Insides::core(device()).memory.memoryTypeCount > 1);
                CHECK((errors == (nth > 0 ? 1 : 0) || (elsewhere && errors == 0)));
                CHECK(vulkan.live_objects() == 0);
                CHECK(vulkan.allocated_bytes() == 0);
                calls = nth == 0 ? fault.count(vulkan) : calls;
            }
        }
    }

    TEST_CASE("faults: out of memory says what was asked and what there was") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        constexpr std::uint64_t kAlways = 1 << 30;  // whatever type of memory is tried next
        vulkan.vkAllocateMemory.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY, 1, kAlways);
        try {
            SmallModel::load(device);
            FAIL("it was loaded");
        } catch (const Error& e) {
            CHECK(e.result() == VK_ERROR_OUT_OF_DEVICE_MEMORY);
            CHECK(contains(e.what(), "bytes for weights were asked; the heap has "));
            CHECK(contains(e.what(), "VK_ERROR_OUT_OF_DEVICE_MEMORY"));
        }
        vulkan.vkAllocateMemory.fail(VK_SUCCESS, 0, 0);
        // a driver may say so of the buffer already
        vulkan.vkCreateBuffer.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY);
        const std::string said = error_of([&] { SmallModel::load(device); });
        CHECK(contains(said, "bytes for weights were asked; the heap has "));
        CHECK(contains(said, "vkCreateBuffer gave VK_ERROR_OUT_OF_DEVICE_MEMORY; one allocation at most "));
        // and is not asked for more than one allocation may have
        const std::uint64_t most = std::exchange(Insides::core(device).capabilities.max_allocation, 1 << 10);
        const std::uint64_t buffers = vulkan.vkCreateBuffer.calls;
        CHECK(contains(error_of([&] { device.make_tensor({1 << 20}); }),
                       "4 MiB for a tensor of (1048576) were asked; the heap has "));
        CHECK(vulkan.vkCreateBuffer.calls == buffers);
        Insides::core(device).capabilities.max_allocation = most;
        Graph g;
        SmallModel::describe(g, 4);
        Program program = device.compile(g, SmallModel::load(device));
        CHECK(SmallModel::check(program, 4) == "");
    }

    TEST_CASE("faults: where the device's memory is full, the host's is taken, and that is told") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        // A heap of the device's and one of the host's, both of them in truth of the driver's first
        // type that the host can map.
        std::uint32_t mapped = 0;
        bool full = false;
        VkDeviceSize budget = 0;
        fake::Vulkan vulkan;
        vulkan.vkGetPhysicalDeviceMemoryProperties.instead = [&](VkPhysicalDevice d,
                                                                 VkPhysicalDeviceMemoryProperties* m) {
            vulkan.vkGetPhysicalDeviceMemoryProperties.real(d, m);
            const auto* types = std::begin(m->memoryTypes);
            mapped = static_cast<std::uint32_t>(std::find_if(types, types + m->memoryTypeCount,
                                                             [](const auto& type) {
                                                                 constexpr VkMemoryPropertyFlags kNeeds =
                                                                     VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                                     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
                                                                 return (type.propertyFlags & kNeeds) == kNeeds;
                                                             }) -
                                                types);
            m->memoryTypeCount = m->memoryHeapCount = 2;
            m->memoryTypes[0] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
            m->memoryTypes[1] = {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, 1};
            m->memoryHeaps[0].flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
            m->memoryHeaps[1] = {m->memoryHeaps[0].size, 0};
        };
        vulkan.vkGetPhysicalDeviceMemoryProperties2.instead = [&](VkPhysicalDevice,
                                                                  VkPhysicalDeviceMemoryProperties2* m) {
            auto& budgets = *static_cast<VkPhysicalDeviceMemoryBudgetPropertiesEXT*>(m->pNext);
            budgets.heapBudget[0] = budget;
            budgets.heapUsage[0] = 1000;
        };
        vulkan.vkEnumerateDeviceExtensionProperties.instead = [&](VkPhysicalDevice d, const char* layer,
                                                                  std::uint32_t* count, VkExtensionProperties* list) {
            const std::uint32_t room = list ? *count - 1 : 0;
            *count = room;
            const VkResult result = vulkan.vkEnumerateDeviceExtensionProperties.real(d, layer, count, list);
            if (list) {
                list[*count] = {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, 1};
            }
            ++*count;
            return result;
        };
        vulkan.vkGetBufferMemoryRequirements.instead = [&](VkDevice d, VkBuffer buffer, VkMemoryRequirements* needs) {
            vulkan.vkGetBufferMemoryRequirements.real(d, buffer, needs);
            needs->memoryTypeBits = 3;
        };
        vulkan.vkAllocateMemory.instead = [&](VkDevice d, const VkMemoryAllocateInfo* info,
                                              const VkAllocationCallbacks* allocator, VkDeviceMemory* memory) {
            if (full && info->memoryTypeIndex == 0) {
                return VK_ERROR_OUT_OF_DEVICE_MEMORY;
            }
            VkMemoryAllocateInfo real = *info;
            real.memoryTypeIndex = mapped;
            return vulkan.vkAllocateMemory.real(d, &real, allocator, memory);
        };
        const Device device = Device::create({.minimum_profile = true, .get_instance_proc_addr = vulkan.entry()});
        Graph g;
        SmallModel::describe(g, 4);
        const auto outside = [&](bool is_full, VkDeviceSize may_have) {
            full = is_full;
            budget = may_have;
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, 4) == "");
            const DeviceMemory memory = device.memory_use();
            CHECK(memory.allocated > memory.outside);  // mirrors are the host's by right
            CHECK(memory.budget == may_have);
            CHECK(memory.used == 1000);
            CHECK(contains(program.explain(), "lie in the host's memory") == (memory.outside != 0));
            return memory.outside != 0;
        };
        CHECK_FALSE(outside(false, 0));
        CHECK(outside(true, 0));
        CHECK_FALSE(outside(false, 1 << 30));
        CHECK(outside(false, 1001));  // over the budget: it would be slow there too
        CHECK_FALSE(outside(false, 0));
        CHECK(device.memory_use().allocated == 0);
    }

    TEST_CASE("faults: a lost device stays lost, and is destroyed in peace") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        for (const std::string where : {"submit", "wait", "upload", "pipelines"}) {
            CAPTURE(where);
            fake::Vulkan vulkan;
            {
                const Device device =
                    Device::create({.minimum_profile = true, .get_instance_proc_addr = vulkan.entry()});
                const Weights weights = SmallModel::load(device);
                Graph g;
                SmallModel::describe(g, 4);
                Program program = device.compile(g, weights);
                CHECK(SmallModel::check(program, 4) == "");
                Graph other;
                other.output("y", layer_norm(other.input("x", {3, 4}), {}, {}));
                if (where == "wait") {
                    vulkan.vkWaitForFences.fail(VK_ERROR_DEVICE_LOST);
                } else if (where == "pipelines") {
                    vulkan.vkCreateComputePipelines.fail(VK_ERROR_DEVICE_LOST);
                } else {
                    vulkan.vkQueueSubmit.fail(VK_ERROR_DEVICE_LOST);
                }
                try {
                    if (where == "upload") {
                        SmallModel::load(device);
                    } else if (where == "pipelines") {
                        device.compile(other);
                    } else {
                        program.run();
                    }
                    FAIL("nothing was thrown");
                } catch (const Error& e) {
                    CHECK(e.result() == VK_ERROR_DEVICE_LOST);
                    CHECK(contains(e.what(), "VK_ERROR_DEVICE_LOST"));
                }
                const std::uint64_t submitted = vulkan.vkQueueSubmit.calls;
                for (const std::string& said :
                     {error_of([&] { program.run(); }), error_of([&] { SmallModel::load(device); }),
                      error_of([&] { device.compile(other); }),
                      error_of([&] { device.make_state({&other}).clear(); })}) {
                    if (!said.empty()) {
                        CHECK(contains(said, "was lost; make a new Device"));
                    }
                }
                CHECK(error_of([&] { program.run(); }) != "");
                CHECK(error_of([&] { device.compile(other); }) != "");
                CHECK(vulkan.vkQueueSubmit.calls == submitted);
                // a run that had begun may have written over the answer of the run before
                const bool begun = where == "submit" || where == "wait";
                CHECK(contains(error_of([&] { program.download("y"); }), "was lost; make a new Device") == begun);
            }
            CHECK(vulkan.live_objects() == 0);
        }
    }

    TEST_CASE("faults: a lost device takes nothing into memory that the host sees, either") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        const Host host;
        BorrowedDevice handles = host.handles();
        handles.host_submits = true;
        for (const Device& device : {Device::create({.minimum_profile = true}), Device::borrow(handles)}) {
            const bool own = !Insides::core(device).deferred;
            CAPTURE(own);
            Graph g;
            g.output("y", g.state("s", {300}) * g.input("x", {300}));
            State state = device.make_state({&g});
            Program program = device.compile(g, {}, {.state = state});
            program.allocate();
            const std::vector<float> ones(300, 1.0f);
            const auto bytes = std::as_bytes(std::span(ones));
            DeviceTensor tensor;
            if (own) {
                tensor = device.make_tensor({300});
                program.upload("x", ones);
                program.run();
            }
            const std::uint64_t pending = device.pending_uploads();
            Insides::core(device).lost = true;
            std::vector<std::function<void()>> calls{[&] { state.write("s", bytes); }, [&] { state.clear(); },
                                                     [&] { program.allocate(); },
                                                     [&] { device.load(std::span<const HostTensor>()); }};
            if (own) {
                calls.insert(calls.end(), {[&] { tensor.write(bytes); }, [&] { program.upload("x", ones); },
                                           [&] { program.bind("x", tensor); }, [&] { program.bind("x", {}); }});
            }
            for (std::size_t i = 0; i < calls.size(); ++i) {
                CAPTURE(i);
                CHECK(contains(error_of(calls[i]), "was lost; make a new Device"));
            }
            CHECK(device.pending_uploads() == pending);
        }
    }

    TEST_CASE("faults: a run that a ticket saw lost has no results") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        {
            const Device device = Device::create({.minimum_profile = true, .get_instance_proc_addr = vulkan.entry()});
            Graph g;
            SmallModel::describe(g, 4);
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, 4) == "");
            const Ticket before = program.submit();
            before.wait();
            const Ticket ticket = program.submit();
            vulkan.vkWaitForFences.fail(VK_ERROR_DEVICE_LOST);
            CHECK(contains(error_of([&] { ticket.wait(); }), "VK_ERROR_DEVICE_LOST"));
            check_lost(ticket);
            CHECK(before.done());
            for (int i = 0; i < 2; ++i) {
                CHECK(contains(error_of([&] { program.download("y"); }), "was lost; make a new Device"));
            }
        }
        CHECK(vulkan.live_objects() == 0);
        for (const bool by_done : {false, true}) {
            CAPTURE(by_done);
            const Device device = Device::create({.minimum_profile = true, .get_instance_proc_addr = vulkan.entry()});
            Graph g;
            SmallModel::describe(g, 4);
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, 4) == "");
            const Ticket ticket = program.submit();
            vulkan.vkWaitForFences.fail(by_done ? VK_ERROR_DEVICE_LOST : VK_TIMEOUT);
            CHECK(error_of([&] { by_done ? static_cast<void>(ticket.done()) : ticket.wait(); }) != "");
            check_lost(ticket);
        }
    }

    TEST_CASE("faults: a submission that fails half-way leaves nothing pending") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        {
            const Device device = Device::create({.submit_budget = 1, .get_instance_proc_addr = vulkan.entry()});
            Graph g;
            SmallModel::describe(g, 8);
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, 8) == "");
            const std::size_t submissions = submissions_of(program);
            REQUIRE(submissions > 2);
            const std::uint64_t waits_before = vulkan.vkQueueWaitIdle.calls;
            vulkan.vkResetFences.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY);  // between the submissions
            CHECK(contains(error_of([&] { program.run(); }), "vkResetFences gave VK_ERROR_OUT_OF_DEVICE_MEMORY"));
            CHECK(vulkan.vkQueueWaitIdle.calls == waits_before + 1);
            CHECK(SmallModel::check(program, 8) == "");
            for (std::size_t nth = 1; nth <= submissions; ++nth) {
                vulkan.vkQueueSubmit.fail(VK_ERROR_OUT_OF_HOST_MEMORY, nth);
                const std::uint64_t waits = vulkan.vkQueueWaitIdle.calls;
                CHECK(contains(error_of([&] { program.run(); }), "vkQueueSubmit gave VK_ERROR_OUT_OF_HOST_MEMORY"));
                CHECK(vulkan.vkQueueWaitIdle.calls == waits + 1);
                CHECK(SmallModel::check(program, 8) == "");
            }
        }
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("faults: a driver without one of the functions leaves neither device nor instance behind") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        const auto all = vulkan.vkGetDeviceProcAddr.instead;
        vulkan.vkGetDeviceProcAddr.instead = [&](VkDevice device, const char* name) {
            return std::string_view(name) == "vkCmdDispatch" ? nullptr : all(device, name);
        };
        CHECK(error_of([&] { Device::create({.get_instance_proc_addr = vulkan.entry()}); }) ==
              "the Vulkan device has no function vkCmdDispatch");
        CHECK(vulkan.vkDestroyDevice.calls == 1);
        CHECK(vulkan.live_objects() == 0);

        static GetInstanceProcAddr entry;
        entry = vulkan.entry();
        const GetInstanceProcAddr lacking = [](VkInstance instance, const char* name) {
            return std::string_view(name) == "vkEnumeratePhysicalDevices" ? nullptr : entry(instance, name);
        };
        CHECK(error_of([&] { Device::create({.get_instance_proc_addr = lacking}); }) ==
              "the Vulkan instance has no function vkEnumeratePhysicalDevices");
        CHECK(vulkan.vkDestroyInstance.calls == vulkan.vkCreateInstance.calls);
        CHECK(vulkan.live_objects() == 0);
    }
}

}  // namespace vkf::test
