// SPDX-License-Identifier: Apache-2.0
// Device memory: what is asked for is what was said, what there is not is an error, and a tensor
// may be larger than one storage buffer or than the staging memory.
#include "runtime/device/memory.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

/// A tensor of a store as a program sees it.
std::vector<float> read_back(const Device& device, const Weights& weights, const std::string& name,
                             std::int64_t count) {
    Graph g;
    g.output("y", contiguous(g.weight(name, {count})));
    Program program = device.compile(g, weights);
    program.run();
    return program.download("y");
}

void claim_range(fake::Vulkan& vulkan, std::uint32_t bytes) {
    vulkan.change_limits([bytes](VkPhysicalDeviceLimits& limits) { limits.maxStorageBufferRange = bytes; });
}

constexpr std::uint64_t kMiB = 1u << 20;

}  // namespace

TEST_SUITE("memory") {
    TEST_CASE("memory: memory() tells every byte before any is allocated") {
        const Environment unchecked("VKFORMER_CHECKED", {});  // no canaries: they would count
        for (const bool minimum : {false, true}) {
            CAPTURE(minimum);
            fake::Vulkan vulkan;
            Device device = Device::create({.minimum_profile = minimum, .get_instance_proc_addr = vulkan.entry()});
            {
                const Weights weights = SmallModel::load(device);
                Graph g;
                SmallModel::describe(g, 100);
                const std::vector<float> table(SmallModel::kWidth, 2.0f);
                const Value kept =
                    copy_into(g.state("cache", {7, SmallModel::kWidth}),
                              broadcast_to(g.constant("table", {SmallModel::kWidth}, table), {7, SmallModel::kWidth}));
                g.output("z", scale(scale(kept, 2.0f), 0.5f));

                const std::uint64_t before = vulkan.buffer_bytes();
                const std::uint64_t allocations = vulkan.vkAllocateMemory.calls;
                Program program = device.compile(g, weights);
                CHECK(vulkan.vkAllocateMemory.calls == allocations);
                const MemorySizes& sizes = program.memory();
                CHECK(sizes.weights == weights.bytes());
                CHECK(sizes.state > 0);
                CHECK(sizes.constants > 0);
                CHECK(sizes.scratch > 0);
                CHECK((sizes.mirrors == 0) == device.capabilities().unified_memory);

                program.allocate();
                CHECK(vulkan.buffer_bytes() - before == sizes.state + sizes.constants + sizes.scratch);
                CHECK(SmallModel::check(program, 100) == "");
                CHECK(vulkan.buffer_bytes() - before ==
                      sizes.state + sizes.constants + sizes.scratch + sizes.inputs + sizes.outputs + sizes.mirrors);
                CHECK(download(program, "z").data == std::vector<double>(7 * SmallModel::kWidth, 2.0));
            }
            CHECK(vulkan.buffer_bytes() == 0);
            CHECK(vulkan.allocated_bytes() == 0);
            CHECK(last_words(std::move(device)) == "");
            CHECK(vulkan.live_objects() == 0);
        }
    }

    TEST_CASE("memory: uploads larger than the staging memory are streamed through it") {
        const Environment unchecked("VKFORMER_CHECKED", {});  // no canaries: they would count
        for (const std::uint64_t staging : {1000, 1, 4096, 1 << 20}) {
            CAPTURE(staging);
            fake::Vulkan vulkan;
            std::vector<std::uint64_t> staging_blocks;
            vulkan.vkCreateBuffer.instead = [&](VkDevice device, const VkBufferCreateInfo* info,
                                                const VkAllocationCallbacks* callbacks, VkBuffer* buffer) {
                if ((info->usage & VK_BUFFER_USAGE_STORAGE_BUFFER_BIT) == 0) {
                    staging_blocks.push_back(info->size);
                }
                return vulkan.vkCreateBuffer.real(device, info, callbacks, buffer);
            };
            Device device = Device::create(
                {.minimum_profile = true, .staging_bytes = staging, .get_instance_proc_addr = vulkan.entry()});
            const std::vector<float> a = random_tensor({staging == 1 ? 77 : 3001}, 1).floats();
            const std::vector<float> b = random_tensor({999}, 2).floats();
            const std::vector<float> c = random_tensor({1}, 3).floats();
            {
                const auto count = static_cast<std::int64_t>(a.size());
                const Weights weights = device.load(
                    std::vector{host_tensor("a", {count}, a), host_tensor("b", {999}, b), host_tensor("c", {1}, c)});
                REQUIRE(staging_blocks.size() == 1);
                CHECK(staging_blocks.front() <= std::max<std::uint64_t>(staging, 4));
                const std::uint64_t bytes = (a.size() + b.size() + c.size()) * sizeof(float);
                CHECK(vulkan.vkQueueSubmit.calls == (bytes + staging_blocks.front() - 1) / staging_blocks.front());
                CHECK(read_back(device, weights, "a", count) == a);
                CHECK(read_back(device, weights, "b", 999) == b);
                CHECK(read_back(device, weights, "c", 1) == c);
            }
            CHECK(last_words(std::move(device)) == "");
        }
    }

    TEST_CASE("memory: no staging memory at all becomes the least there is") {
        const Device device = Device::create({.minimum_profile = true, .staging_bytes = 0});
        const std::vector<float> numbers{1, 2, 3, 4, 5};
        DeviceTensor tensor = device.make_tensor({5});
        tensor.write(std::as_bytes(std::span(numbers)));
        const std::vector<std::byte> back = tensor.read();
        CHECK(std::equal(back.begin(), back.end(), std::as_bytes(std::span(numbers)).begin()));
        CHECK(back.size() == 20);
    }

    TEST_CASE("memory: weights larger than one storage buffer give the same bits") {
        fake::Vulkan vulkan;
        claim_range(vulkan, kMiB);
        Device small = Device::create({.get_instance_proc_addr = vulkan.entry()});
        REQUIRE(small.capabilities().storage_range == kMiB);
        constexpr std::int64_t kVocabulary = 4001;
        constexpr std::int64_t kWidth = 200;
        constexpr std::int64_t kOut = 3001;
        // 3.2 MB
        const std::vector<float> table = random_tensor({kVocabulary, kWidth}, 1).floats();
        // 2.4 MB
        const std::vector<float> weight = random_tensor({kOut, kWidth}, 2).floats();
        const std::vector<float> bias = random_tensor({kOut}, 3).floats();
        std::vector<std::int32_t> ids = {0, 1, 1310, 1311, 2620, 2621, 3999, 4000};
        Graph g;
        const Value rows = embedding(g.input("ids", {8}, DType::i32), g.weight("table", {kVocabulary, kWidth}), 2.0f);
        g.output("rows", contiguous(rows));
        g.output("y", linear(rows, g.weight("weight", {kOut, kWidth}), g.weight("bias", {kOut}), Activation::silu));
        const auto run = [&](const Device& on) {
            const Weights weights =
                on.load(std::vector{host_tensor("table", {kVocabulary, kWidth}, table),
                                    host_tensor("weight", {kOut, kWidth}, weight), host_tensor("bias", {kOut}, bias)});
            Program program = on.compile(g, weights);
            for (const PlannedDispatch& d : plan_of(program).dispatches) {
                for (const Window& w : d.windows) {
                    CHECK(w.bytes <= on.capabilities().storage_range);
                }
            }
            program.upload("ids", ids);
            program.run();
            return std::pair{download(program, "rows"), download(program, "y")};
        };
        const auto got = run(small);
        const auto want = run(device());
        CHECK(same_bits(got.first, want.first));
        CHECK(same_bits(got.second, want.second));
        for (std::size_t i = 0; i < ids.size(); ++i) {
            CHECK(got.first.at({static_cast<std::int64_t>(i), 7}) ==
                  2.0f * table[static_cast<std::size_t>(ids[i] * kWidth + 7)]);
        }
        CHECK(last_words(std::move(small)) == "");
    }

    TEST_CASE("memory: an activation larger than one storage buffer is refused before anything is allocated") {
        fake::Vulkan vulkan;
        claim_range(vulkan, kMiB);
        Device small = Device::create({.get_instance_proc_addr = vulkan.entry()});
        Graph g;
        const Value x = g.input("x", {g.symbol("rows", 2000), 200});
        g.output("y", softmax(x));
        const std::string said = error_of([&] { small.compile(g); });
        CAPTURE(said);
        CHECK(contains(said, "softmax"));
        CHECK(contains(said, "1600000 bytes"));
        CHECK(contains(said, "1048576"));
        CHECK(vulkan.vkAllocateMemory.calls == 0);
        CHECK(last_words(std::move(small)) == "");
    }

    TEST_CASE("memory: a weight of 160 MiB works where a storage buffer has 128 MiB") {
        if (device().capabilities().storage_range >= 160 * kMiB) {
            cannot_run("a storage range below 160 MiB");
            return;
        }
        constexpr std::int64_t kRows = 40960;
        constexpr std::int64_t kWidth = 1024;
        std::vector<float> table(kRows * kWidth);
        for (std::size_t i = 0; i < table.size(); i += 101) {
            table[i] = static_cast<float>(i);
        }
        Graph g;
        g.output("y", embedding(g.input("ids", {3}, DType::i32), g.weight("table", {kRows, kWidth})));
        Program program = device().compile(g, device().load(std::vector{host_tensor("table", {kRows, kWidth}, table)}));
        const std::vector<std::int32_t> ids = {0, 32768, kRows - 1};
        program.upload("ids", ids);
        program.run();
        const std::vector<float> y = program.download("y");
        for (std::size_t i = 0; i < ids.size(); ++i) {
            CHECK(std::equal(y.begin() + static_cast<std::ptrdiff_t>(i * kWidth),
                             y.begin() + static_cast<std::ptrdiff_t>((i + 1) * kWidth),
                             table.begin() + ids[i] * kWidth));
        }
    }

    TEST_CASE("memory: weights larger than one allocation, or one buffer, lie in several") {
        const Environment unchecked("VKFORMER_CHECKED", {});  // no canaries: they would count
        VkStructureType limited{};
        bool asked = false;
        SUBCASE("allocation") { limited = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES; }
        SUBCASE("buffer") { limited = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES; }
        fake::Vulkan vulkan;
        vulkan.vkGetPhysicalDeviceProperties2.instead = [&](VkPhysicalDevice physical,
                                                            VkPhysicalDeviceProperties2* out) {
            vulkan.vkGetPhysicalDeviceProperties2.real(physical, out);
            for (auto* next = static_cast<VkBaseOutStructure*>(out->pNext); next; next = next->pNext) {
                asked = asked || next->sType == limited;
                if (next->sType != limited) {
                    continue;
                }
                if (limited == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES) {
                    reinterpret_cast<VkPhysicalDeviceMaintenance3Properties*>(next)->maxMemoryAllocationSize = kMiB;
                } else {
                    reinterpret_cast<VkPhysicalDeviceMaintenance4Properties*>(next)->maxBufferSize = kMiB;
                }
            }
        };
        Device device = Device::create({.staging_bytes = kMiB, .get_instance_proc_addr = vulkan.entry()});
        if (!asked) {
            cannot_run("a device that tells how large a buffer can be");
            return;
        }
        const std::vector<float> part = random_tensor({150000}, 1).floats();  // 600 kB
        const std::vector<float> third = random_tensor({100000}, 2).floats();
        {
            const std::uint64_t before = vulkan.vkAllocateMemory.calls;
            const Weights weights = device.load(std::vector{
                host_tensor("a", {150000}, part), host_tensor("b", {150000}, part), host_tensor("c", {100000}, third)});
            CHECK(vulkan.vkAllocateMemory.calls - before ==
                  (device.capabilities().unified_memory ? 2 : 3));  // and staging
            CHECK(read_back(device, weights, "a", 150000) == part);
            CHECK(read_back(device, weights, "c", 100000) == third);
        }
        CHECK(last_words(std::move(device)) == "");
    }

    TEST_CASE("memory: more than there is is an error that says both, and the device goes on") {
        fake::Vulkan vulkan;
        vulkan.vkGetPhysicalDeviceMemoryProperties.instead = [&](VkPhysicalDevice physical,
                                                                 VkPhysicalDeviceMemoryProperties* out) {
            vulkan.vkGetPhysicalDeviceMemoryProperties.real(physical, out);
            for (std::uint32_t i = 0; i < out->memoryHeapCount; ++i) {
                out->memoryHeaps[i].size = 3 * kMiB;
            }
        };
        Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        const std::vector<float> large(2 * kMiB);
        const std::string said = error_of([&] { device.load(std::vector{host_tensor("large", {2 << 20}, large)}); });
        CAPTURE(said);
        CHECK(contains(said, "8 MiB for weights were asked"));
        CHECK(contains(said, "3 MiB"));
        CHECK(vulkan.vkAllocateMemory.calls == 0);
        {
            Graph g;
            const Value x = g.input("x", {g.symbol("rows", 1024), 1024});
            g.output("y", softmax(x));
            Program program = device.compile(g);
            CHECK(contains(error_of([&] { program.upload("x", std::vector<float>(kMiB)); }), "inputs and outputs"));
        }
        {
            Graph g;
            SmallModel::describe(g, 5);
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, 5) == "");
        }
        CHECK(last_words(std::move(device)) == "");
        CHECK(vulkan.live_objects() == 0);
    }
}

}  // namespace vkf::test
