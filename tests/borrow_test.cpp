// SPDX-License-Identifier: Apache-2.0
// Living on a host's device: recording into its command buffers with its buffers, destroying
// nothing of it.
#include <doctest/doctest.h>

#include <cstring>
#include <thread>

#include "ops/ops.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/bound_recording.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

constexpr std::uint64_t kOffset = 4096;  // a multiple of every alignment there is

void put(const Host::Buffer& buffer, std::uint64_t offset, const std::vector<float>& data) {
    std::memcpy(buffer.mapped + offset, data.data(), data.size() * sizeof(float));
}

Tensor get(const Host::Buffer& buffer, std::uint64_t offset, std::int64_t tokens) {
    std::vector<float> data(static_cast<std::size_t>(tokens * SmallModel::kWidth));
    std::memcpy(data.data(), buffer.mapped + offset, data.size() * sizeof(float));
    return Tensor({tokens, SmallModel::kWidth}, {data.begin(), data.end()});
}

struct CountedLock {
    int locked = 0;
    int times = 0;
};

}  // namespace

TEST_SUITE("borrow") {
    TEST_CASE("borrow: a queue family that is none, and an instance for Vulkan 1.0, are refused") {
        Host host;
        BorrowedDevice handles = host.handles();
        for (const std::uint32_t family : {7u, VK_QUEUE_FAMILY_IGNORED}) {
            handles.queue_family = family;
            CHECK(contains(error_of([&] { Device::borrow(handles); }), "Device::borrow: there is no queue family " +
                                                                           std::to_string(family) +
                                                                           "; of these the host's device has "));
        }
        {
            constexpr std::uint32_t kFamilies = 3;
            fake::Vulkan vulkan;
            handles.get_instance_proc_addr = vulkan.entry();
            vulkan.vkGetPhysicalDeviceQueueFamilyProperties.instead = [](VkPhysicalDevice, std::uint32_t* count,
                                                                         VkQueueFamilyProperties* out) {
                *count = kFamilies;
                for (std::uint32_t i = 0; out && i < kFamilies; ++i) {
                    out[i] = {VK_QUEUE_TRANSFER_BIT, 1, 64, {1, 1, 1}};
                }
            };
            handles.queue_family = 1;
            CHECK(error_of([&] { Device::borrow(handles); }) ==
                  "Device::borrow: queue family 1 of the host's device has no compute");
            handles.queue_family = 3;
            CHECK(error_of([&] { Device::borrow(handles); }) ==
                  "Device::borrow: there is no queue family 3; of these the host's device has 3");
            vulkan.vkGetPhysicalDeviceProperties2.instead = [](VkPhysicalDevice, VkPhysicalDeviceProperties2* out) {
                out->properties.apiVersion = VK_API_VERSION_1_0;
            };
            CHECK(error_of([&] { Device::borrow(handles); }) ==
                  "Device::borrow: the host's device offers no Vulkan 1.1");
        }
        const PFN_vkGetInstanceProcAddr get = fake::loader();
        const auto create = reinterpret_cast<PFN_vkCreateInstance>(get(nullptr, "vkCreateInstance"));
        VkInstanceCreateInfo info{};  // says no version
        info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
        VkInstance old = VK_NULL_HANDLE;
        REQUIRE(create(&info, nullptr, &old) == VK_SUCCESS);
        const InstanceTable api = load_instance_table(get, old);
        std::uint32_t count = 1;
        VkPhysicalDevice physical = VK_NULL_HANDLE;
        api.vkEnumeratePhysicalDevices(old, &count, &physical);
        CHECK(contains(error_of([&] { Device::requirements(old, physical); }),
                       "its instance was made for Vulkan 1.0: VkApplicationInfo::apiVersion must be 1.1 or higher"));
        api.vkDestroyInstance(old, nullptr);
    }

    TEST_CASE("borrow: options that only create() reads are refused") {
        const Host host;
        const auto refused = [&](const char* member, const DeviceOptions& options) {
            CHECK(error_of([&] { Device::borrow(host.handles(), options); }) ==
                  "Device::borrow: DeviceOptions::" + std::string(member) + " is for Device::create() alone");
        };
        refused("select", {.select = "0"});
        refused("validation", {.validation = true});
        refused("get_instance_proc_addr",
                {.get_instance_proc_addr = reinterpret_cast<GetInstanceProcAddr>(fake::loader())});
    }

    TEST_CASE("borrow: an old validation layer keeps labels off, not names") {
        const Host host;
        fake::Vulkan vulkan;
        BorrowedDevice handles = host.handles();
        handles.get_instance_proc_addr = vulkan.entry();
        handles.debug_utils = true;
        VkLayerProperties layer{"VK_LAYER_KHRONOS_validation", 0, 1, ""};
        std::uint32_t layers = 1;
        vulkan.vkEnumerateInstanceLayerProperties.instead = [&](std::uint32_t* count, VkLayerProperties* out) {
            *count = layers;
            if (out) {
                *out = layer;
            }
            return VK_SUCCESS;
        };
        const auto labels = [&](std::uint32_t patch) {
            layer.specVersion = VK_MAKE_API_VERSION(0, 1, 3, patch);
            const Device device = Device::borrow(handles);
            CHECK(Insides::core(device).instance->debug_utils == handles.debug_utils);
            return Insides::core(device).instance->labels;
        };
        CHECK_FALSE(labels(245));
        CHECK(labels(246));
        layers = 0;
        CHECK(labels(0));
        handles.debug_utils = false;
        CHECK_FALSE(labels(0));
    }

    TEST_CASE("borrow: records into the host's command buffer, two slots in flight, allocating nothing") {
        Host host;
        fake::Vulkan vulkan;
        {
            BorrowedDevice handles = host.handles();
            handles.get_instance_proc_addr = vulkan.entry();
            const Device device = Device::borrow(handles);
            Graph g;
            SmallModel::describe(g, kMax);
            Program program = device.compile(g, SmallModel::load(device), {.slots = 2});
            program.allocate();
            CHECK(program.memory().inputs + program.memory().outputs > 0);
            CHECK(vulkan.buffer_bytes() ==  // no memory for inputs and outputs, which the host has
                  program.memory().weights + program.memory().scratch);
            const Host::Buffer both[2] = {host.make_buffer(kOffset * 4), host.make_buffer(kOffset * 4)};
            const std::uint64_t objects = vulkan.live_objects();
            const std::uint64_t submits = vulkan.vkQueueSubmit.calls;
            std::int64_t tokens[2] = {};
            for (int round = 0; round < 3; ++round) {
                for (std::uint32_t slot = 0; slot < 2; ++slot) {
                    tokens[slot] = round == 0 ? kMax : 1 + 7 * round + 3 * slot;
                    put(both[slot], kOffset, SmallModel::input(tokens[slot]).floats());
                    const BufferRange ranges[] = {{"x", both[slot].buffer, kOffset, kBytes},
                                                  {"y", both[slot].buffer, 2 * kOffset, kBytes}};
                    const SizeSetting sizes[] = {{"tokens", tokens[slot]}};
                    VkCommandBuffer commands = host.begin();
                    Status status;
                    {
                        const allocations::Counter counter;
                        status = program.record(commands, ranges, sizes, slot);
                        CHECK(counter.count() == 0);
                    }
                    CHECK(text_of(status) == "");
                    CHECK(status);
                    host.submit(commands);
                }
                host.wait_idle();
                for (int slot = 0; slot < 2; ++slot) {
                    CAPTURE(round);
                    CAPTURE(slot);
                    CHECK(difference(get(both[slot], 2 * kOffset, tokens[slot]), SmallModel::answer(tokens[slot]),
                                     SmallModel::tolerance()) == "");
                }
            }
            CHECK(static_cast<std::uint64_t>(vulkan.live_objects()) == objects);
            CHECK(vulkan.vkQueueSubmit.calls == submits);
        }
        CHECK(vulkan.live_objects() == 0);
        CHECK(vulkan.vkDestroyDevice.calls == 0);
        CHECK(vulkan.vkDestroyInstance.calls == 0);
        CHECK(vulkan.vkCreateInstance.calls == 0);
        CHECK(vulkan.vkCreateDevice.calls == 0);
        host.destroy(host.make_buffer(16));  // the host's device is as usable as before
        CHECK(host.messages().empty());
    }

    TEST_CASE("borrow: without an entry point the loader's is used, and run() takes the host's queue under its lock") {
        Host host;
        CountedLock lock;
        {
            BorrowedDevice handles = host.handles();
            handles.lock = [](void* user) { ++static_cast<CountedLock*>(user)->locked; };
            handles.unlock = [](void* user) {
                --static_cast<CountedLock*>(user)->locked;
                ++static_cast<CountedLock*>(user)->times;
            };
            handles.user = &lock;
            const Device device = Device::borrow(handles, {.minimum_profile = true});
            CHECK(device.capabilities().minimum_profile);
            Graph g;
            SmallModel::describe(g, kMax);
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, kMax) == "");
            const int before = lock.times;
            CHECK(before >= 2);
            program.run();
            CHECK(lock.times == before + 1);
            CHECK(lock.locked == 0);
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("borrow: the host's lock is taken before ours, which a thread that has the host's may wait for") {
        struct Order {
            DeviceCore* core = nullptr;
            int times = 0, behind_ours = 0;
        } order;
        Host host;
        {
            BorrowedDevice handles = host.handles();
            handles.lock = [](void* user) {
                Order& o = *static_cast<Order*>(user);
                ++o.times;
                std::thread([&] {
                    if (o.core && !o.core->queue_mutex.try_lock()) {
                        ++o.behind_ours;
                    } else if (o.core) {
                        o.core->queue_mutex.unlock();
                    }
                }).join();
            };
            handles.unlock = [](void*) {};
            handles.user = &order;
            const Device device = Device::borrow(handles);
            order.core = &Insides::core(device);
            Graph g;
            SmallModel::describe(g, kMax);
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, kMax) == "");
            const int before = order.times;
            CHECK(before >= 1);
            order.core->wait_idle();
            CHECK(order.times == before + 1);
            CHECK(order.behind_ours == 0);
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("borrow: a buffer made anew is bound anew, whatever its handle") {
        Host host;
        {
            const Device device = Device::borrow(host.handles());
            Graph g;
            SmallModel::describe(g, kMax);
            Program program = device.compile(g, SmallModel::load(device));
            program.allocate();
            const Host::Buffer y = host.make_buffer(kBytes);
            for (const std::int64_t tokens : {5, 6, 7, 8}) {
                const Host::Buffer x = host.make_buffer(kBytes);
                put(x, 0, SmallModel::input(tokens).floats());
                const BufferRange ranges[] = {{"y", y.buffer, 0, kBytes}, {"x", x.buffer, 0, kBytes}};
                const SizeSetting sizes[] = {{"tokens", tokens}};
                VkCommandBuffer commands = host.begin();
                CHECK(program.record(commands, ranges, sizes));
                host.submit(commands);
                host.wait_idle();
                CHECK(difference(get(y, 0, tokens), SmallModel::answer(tokens), SmallModel::tolerance()) == "");
                host.destroy(x);
            }
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("borrow: wrong use of record() is told by its status") {
        Host host;
        {
            const Device device = Device::borrow(host.handles());
            Graph g;
            SmallModel::describe(g, kMax);
            slice(g.state("cache", {kMax, 2}), 0, g.symbol("tokens", kMax), g.symbol("more", kMax));
            Program program = device.compile(g, SmallModel::load(device), {.name = "layer"});
            const Host::Buffer x = host.make_buffer(2 * kOffset);
            const Host::Buffer y = host.make_buffer(2 * kOffset);
            const std::vector<BufferRange> good = {{"x", x.buffer, kOffset, kBytes}, {"y", y.buffer, 0, kBytes}};
            const std::vector<SizeSetting> three = {{"tokens", 3}, {"more", 3}};
            VkCommandBuffer commands = host.begin();
            const auto said = [&](const std::vector<BufferRange>& ranges, const std::vector<SizeSetting>& sizes,
                                  std::uint32_t slot = 0) {
                const Status status = program.record(commands, ranges, sizes, slot);
                CHECK(status.result == (status.message[0] ? Status::kWrongUse : 0));
                return text_of(status);
            };
            const auto changed = [&](auto change) {
                std::vector<BufferRange> ranges = good;
                change(ranges[0]);
                return ranges;
            };
            CHECK(said(good, three) == "layer: allocate() must come before record()");
            program.allocate();
            CHECK(said({good[1]}, three) == "layer: x is not bound");
            CHECK(said({good[0]}, three) == "layer: y is not bound");
            CHECK(contains(said(changed([](BufferRange& r) { r.bytes -= 4; }), three), "layer: x needs 3840 bytes"));
            CHECK(contains(said(changed([](BufferRange& r) { r.offset = 4; }), three), "3840 at 4 were given"));
            CHECK(said(good, {{"token", 3}}) == "layer: the program has no size \"token\"");
            CHECK(said(good, {{"tokens", kMax + 1}}) == "layer: size tokens = 41 is outside 0..40");
            CHECK(said(good, {{"tokens", -1}}) == "layer: size tokens = -1 is outside 0..40");
            const std::string more = said(good, {{"tokens", kMax}, {"more", 1}});
            CHECK(more.starts_with("layer: "));
            CHECK(contains(more, ": 41 is more than 40"));
            CHECK(said(good, three, 1) == "layer: slot 1 of 1");
            put(x, kOffset, SmallModel::input(3).floats());
            CHECK(said(good, three) == "");
            host.submit(commands);
            host.wait_idle();
            CHECK(difference(get(y, 0, 3), SmallModel::answer(3), SmallModel::tolerance()) == "");
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("borrow: features may come in the structures of Vulkan 1.1 to 1.3") {
        Host host(true);
        BorrowedDevice handles = host.handles();
        REQUIRE(handles.created_with != nullptr);
        const Capabilities want = Device::borrow(handles).capabilities();
        const auto borrowed = [&](const Capabilities& asked) {
            const auto on = [](bool feature) { return feature ? VK_TRUE : VK_FALSE; };
            VkPhysicalDeviceVulkan13Features third{};
            third.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
            third.shaderIntegerDotProduct = on(asked.integer_dot);
            VkPhysicalDeviceVulkan12Features second{};
            second.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
            second.pNext = &third;
            second.shaderFloat16 = on(asked.float16);
            second.timelineSemaphore = on(asked.timeline_semaphore);
            VkPhysicalDeviceVulkan11Features first{};
            first.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
            first.pNext = &second;
            first.storageBuffer16BitAccess = on(asked.storage_16bit);
            VkPhysicalDeviceFeatures core{};
            core.shaderInt64 = on(asked.int64);
            core.shaderStorageImageWriteWithoutFormat = on(asked.storage_image_any_format);
            VkDeviceCreateInfo info = *handles.created_with;
            info.pNext = &first;
            info.pEnabledFeatures = &core;
            handles.created_with = &info;
            return Device::borrow(handles).capabilities();
        };
        const VkDeviceCreateInfo* as_created = handles.created_with;
        for (const Capabilities& asked : {want, Capabilities()}) {
            handles.created_with = as_created;
            const Capabilities got = borrowed(asked);
            CHECK(got.integer_dot == asked.integer_dot);
            CHECK(got.float16 == asked.float16);
            CHECK(got.timeline_semaphore == asked.timeline_semaphore);
            CHECK(got.storage_16bit == asked.storage_16bit);
            CHECK(got.int64 == asked.int64);
            CHECK(got.storage_image_any_format == asked.storage_image_any_format);
        }
    }

    TEST_CASE("borrow: explain() leaves open whether driver or host keep floats from being kept") {
        const Host host;
        const Device devices[] = {Device::borrow(host.handles()), Device::create({.minimum_profile = true})};
        for (const Device& device : devices) {
            Insides::core(device).capabilities.keeps_special_f32 = false;
            Graph g;
            g.output("y", scale(g.input("x", {3}), 2.0f));
            const std::string said = device.compile(g).explain();
            CHECK(contains(said, "not asked to keep NaN, infinities and -0.0"));
            CHECK(contains(said, "or the host did not enable it") == (&device == devices));
        }
    }

    TEST_CASE("borrow: handles that are missing are an error") {
        Host host;
        for (const int missing : {0, 1, 2}) {
            BorrowedDevice handles = host.handles();
            (missing == 0   ? reinterpret_cast<void*&>(handles.instance)
             : missing == 1 ? reinterpret_cast<void*&>(handles.physical)
                            : reinterpret_cast<void*&>(handles.device)) = nullptr;
            CHECK(contains(error_of([&] { Device::borrow(handles); }), "Device::borrow: a borrowed device needs"));
        }
    }
}

}  // namespace vkf::test
