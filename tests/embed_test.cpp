// SPDX-License-Identifier: Apache-2.0
// What a renderer asks of a library on its device: its memory, its queues, its frames.
// tests/borrow_test.cpp has the plain cases.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "ops/ops.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/bound_recording.h"
#include "tests/fake_vulkan.h"

namespace vkf::test {

namespace {

struct CountedMemory {
    const Host* host = nullptr;
    VkPhysicalDeviceMemoryProperties properties{};
    int pieces = 0, failing = 0;
    std::vector<std::string> purposes;

    static int allocate(void* user, const MemoryRequest& request, MemoryPiece* piece) {
        auto& self = *static_cast<CountedMemory*>(user);
        if (self.failing > 0 && --self.failing == 0) {
            return VK_ERROR_OUT_OF_DEVICE_MEMORY;
        }
        std::uint32_t type = 0;
        while ((request.type_bits & (1u << type)) == 0 ||
               (self.properties.memoryTypes[type].propertyFlags & request.need) != request.need) {
            ++type;
        }
        // behind some bytes of the host's own
        const std::uint64_t before = (4096 + request.alignment - 1) / request.alignment * request.alignment;
        const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, before + request.bytes, type};
        VkDeviceMemory memory = VK_NULL_HANDLE;
        check(self.host->api().vkAllocateMemory(self.host->device(), &info, nullptr, &memory), "vkAllocateMemory");
        piece->memory = memory;
        piece->offset = before;
        piece->tag = &self;
        if ((request.need & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0) {
            void* mapped = nullptr;
            check(self.host->api().vkMapMemory(self.host->device(), memory, 0, VK_WHOLE_SIZE, 0, &mapped),
                  "vkMapMemory");
            piece->mapped = static_cast<std::byte*>(mapped) + before;
        }
        ++self.pieces;
        self.purposes.emplace_back(request.purpose);
        return VK_SUCCESS;
    }

    static void release(void* user, const MemoryPiece& piece) {
        auto& self = *static_cast<CountedMemory*>(user);
        CHECK(piece.tag == &self);
        self.host->api().vkFreeMemory(self.host->device(), piece.memory, nullptr);
        --self.pieces;
    }
};

}  // namespace

TEST_SUITE("embed") {
    TEST_CASE("embed: a host enables what requirements() lists, and only what it enabled is used") {
        {
            Host plain;
            const Device device = Device::borrow(plain.handles());
            CHECK_FALSE(device.capabilities().external_memory_fd);
            CHECK_FALSE(device.capabilities().external_memory_host);
            CHECK_FALSE(device.capabilities().storage_16bit);
            CHECK_FALSE(device.capabilities().storage_image_any_format);
            CHECK_FALSE(device.capabilities().int64);
            CHECK(plain.messages().empty());
        }
        Host host(true);
        const BorrowedDevice handles = host.handles();
        DeviceRequirements needs = Device::requirements(handles.instance, handles.physical);
        const Device own = Device::create();
        const Device device = Device::borrow(handles);
        CHECK(device.capabilities().external_memory_fd == own.capabilities().external_memory_fd);
        CHECK(device.capabilities().external_memory_host == own.capabilities().external_memory_host);
        if (!own.capabilities().minimum_profile) {
            CHECK(device.capabilities().storage_16bit == own.capabilities().storage_16bit);
        }
        CHECK(device.capabilities().storage_image_any_format == own.capabilities().storage_image_any_format);
        CHECK(device.capabilities().int64 == own.capabilities().int64);
        for (const DeviceRequirement& r : needs.list()) {
            CHECK_FALSE(r.buys.empty());
            CHECK(contains(needs.str(), r.name));
            CHECK((r.extension == (r.name.substr(0, 3) == "VK_")));
        }
        const std::vector<const char*> all = needs.extensions();
        const std::vector<const char*> required = needs.extensions(false);
        CHECK(required.size() <= all.size());
        const int marker = 0;
        auto* last = static_cast<const VkBaseInStructure*>(needs.features(&marker));
        CHECK(last->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
        while (last->pNext != static_cast<const void*>(&marker)) {
            last = last->pNext;
            REQUIRE(last);
        }
        CHECK(contains(error_of([&] { Device::requirements(nullptr, handles.physical); }), "Device::requirements"));
        CHECK(host.messages().empty());
    }

    TEST_CASE("embed: scratch of the host's") {
        Host host;
        fake::Vulkan vulkan;
        {
            const Device device = Device::borrow(through(host, vulkan));
            Graph g;
            SmallModel::describe(g, kMax);
            const Weights weights = SmallModel::load(device);
            Program program = device.compile(g, weights, {.name = "layer"});
            const std::uint64_t bytes = program.memory().scratch;
            const std::uint64_t alignment = device.capabilities().storage_alignment;
            REQUIRE(bytes > 0);
            const Host::Buffer scratch = host.make_buffer(alignment + bytes);
            CHECK(contains(error_of([&] {
                               program.allocate({"", scratch.buffer, alignment, bytes - 1});
                           }),
                           "layer: scratch needs " + std::to_string(bytes) + " bytes"));
            CHECK(contains(error_of([&] { program.allocate({"", scratch.buffer, 4, bytes}); }), "at 4 were given"));
            CHECK(contains(error_of([&] { program.allocate(BufferRange{}); }), "without a buffer"));
            const std::uint64_t before = vulkan.allocated_bytes();
            program.allocate({"", scratch.buffer, alignment, bytes});
            CHECK(vulkan.allocated_bytes() == before + program.memory().constants);
            std::memset(scratch.mapped, 0xff, alignment + bytes);
            const Bound bound(host, 17);
            whole(host, program, bound);
            CHECK(bound.wrong() == "");
            CHECK(std::all_of(scratch.mapped, scratch.mapped + alignment,
                              [](std::byte b) { return b == std::byte{0xff}; }));
            CHECK(contains(error_of([&] {
                               program.allocate({"", scratch.buffer, alignment, bytes});
                           }),
                           "its memory is there already"));
        }
        CHECK(vulkan.live_objects() == 0);
        CHECK(host.messages().empty());
    }

    TEST_CASE("embed: a program without scratch takes none of the host's") {
        Host host;
        {
            const Device device = Device::borrow(host.handles());
            Graph g;
            const Value x = g.input("x", {16});
            g.output("y", x + x);
            Program program = device.compile(g);
            REQUIRE(program.memory().scratch == 0);
            program.allocate(BufferRange{});
            const std::vector<float> three(16, 3.0f);
            program.upload("x", three);
            program.run();
            CHECK(program.download("y") == std::vector<float>(16, 6.0f));
            const Host::Buffer in = host.make_buffer(64), out = host.make_buffer(64);
            std::memcpy(in.mapped, three.data(), 64);
            const BufferRange ranges[] = {{"x", in.buffer, 0, 64}, {"y", out.buffer, 0, 64}};
            VkCommandBuffer commands = host.begin();
            CHECK(text(program.record(commands, ranges, {})) == "");
            // a part of 0 bytes of a host's pool, where the next part begins
            Program checked = device.compile(g, {}, {.checked = true});
            checked.allocate({"", in.buffer, 0, 0});
            CHECK(text(checked.record(commands, ranges, {})) == "");
            host.submit(commands);
            host.wait_idle();
            float last = 0;
            std::memcpy(&last, out.mapped + 60, sizeof(last));
            CHECK(last == 6.0f);
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("embed: memory and pipeline cache of the host's") {
        Host host;
        fake::Vulkan vulkan;
        CountedMemory memory;
        memory.host = &host;
        VkPipelineCache cache = VK_NULL_HANDLE;
        const VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, nullptr, 0, 0, nullptr};
        check(host.api().vkCreatePipelineCache(host.device(), &info, nullptr, &cache), "vkCreatePipelineCache");
        const TemporaryFolder folder;
        {
            BorrowedDevice handles = through(host, vulkan);
            handles.pipeline_cache = cache;
            handles.memory = {CountedMemory::allocate, CountedMemory::release, &memory};
            vulkan.vkCreateComputePipelines.instead = [&](VkDevice d, VkPipelineCache given, std::uint32_t n,
                                                          const VkComputePipelineCreateInfo* p,
                                                          const VkAllocationCallbacks* a, VkPipeline* out) {
                CHECK(given == cache);
                return vulkan.vkCreateComputePipelines.real(d, given, n, p, a, out);
            };
            const Device device = Device::borrow(handles, {.cache_folder = folder.path()});
            CHECK_FALSE(device.save_pipeline_cache());
            BorrowedDevice half = handles;
            half.memory.release = nullptr;
            CHECK(contains(error_of([&] { Device::borrow(half); }), "memory hooks need both functions"));
            memory.properties = Insides::core(device).memory;
            Graph g;
            SmallModel::describe(g, kMax);
            memory.failing = 1;
            CHECK(contains(error_of([&] { SmallModel::load(device); }),
                           "for weights of the host's allocator: VK_ERROR_OUT_OF_DEVICE_MEMORY"));
            Program program = device.compile(g, SmallModel::load(device), {.name = "layer"});
            program.allocate();
            for (const char* purpose : {"weights", "layer scratch"}) {
                CHECK(std::count(memory.purposes.begin(), memory.purposes.end(), purpose) == 1);
            }
            const Bound bound(host, 9);
            whole(host, program, bound);
            CHECK(bound.wrong() == "");
            program.set("tokens", 5);
            CHECK(SmallModel::check(program, 5) == "");  // and for run()
            CHECK(vulkan.vkAllocateMemory.calls == 0);
            CHECK(vulkan.vkCreatePipelineCache.calls == 0);
            CHECK(memory.pieces >= 3);
        }
        CHECK(memory.pieces == 0);
        CHECK(folder.files().empty());
        CHECK(vulkan.vkDestroyPipelineCache.calls == 0);
        host.api().vkDestroyPipelineCache(host.device(), cache, nullptr);
        CHECK(host.messages().empty());
    }

    TEST_CASE("embed: ranges change their queue family before the first and after the last access") {
        Host host;
        fake::Vulkan vulkan;
        {
            const Device device = Device::borrow(through(host, vulkan));
            Program program = compile_small(device);
            program.allocate();
            Bound bound(host, 6);
            struct Seen {
                std::uint32_t from, to;
                VkBuffer buffer;
                VkDeviceSize bytes;
                VkAccessFlags source, target;
                std::uint64_t dispatches;
            };
            std::vector<Seen> seen;
            // there is one family here: the barriers are looked at, and not passed on
            vulkan.vkCmdPipelineBarrier.instead =
                [&](VkCommandBuffer c, VkPipelineStageFlags from, VkPipelineStageFlags to, VkDependencyFlags f,
                    std::uint32_t m, const VkMemoryBarrier* mb, std::uint32_t b, const VkBufferMemoryBarrier* bb,
                    std::uint32_t i, const VkImageMemoryBarrier* ib) {
                    for (std::uint32_t n = 0; n < b; ++n) {
                        seen.push_back({bb[n].srcQueueFamilyIndex, bb[n].dstQueueFamilyIndex, bb[n].buffer, bb[n].size,
                                        bb[n].srcAccessMask, bb[n].dstAccessMask, vulkan.vkCmdDispatch.calls});
                    }
                    vulkan.vkCmdPipelineBarrier.real(c, from, to, f, m, mb, 0, nullptr, i, ib);
                };
            const std::uint32_t mine = host.family();
            const std::uint32_t other = mine + 1;
            bound.ranges[0].acquire_from = other;
            bound.ranges[0].release_to = other;
            // more than the tensor: both sides name the range they agreed on
            bound.ranges[0].bytes = kBytes + 64;
            bound.ranges[1].release_to = other;
            const std::uint64_t before = vulkan.vkCmdDispatch.calls;
            VkCommandBuffer commands = host.begin();
            CHECK(text(program.record(commands, bound.recording())) == "");
            const std::uint64_t after = vulkan.vkCmdDispatch.calls;
            host.submit(commands);
            host.wait_idle();
            CHECK(bound.wrong() == "");
            REQUIRE(seen.size() == 3);
            CHECK(seen[0].from == other);
            CHECK(seen[0].to == mine);
            CHECK(seen[0].buffer == bound.x.buffer);
            CHECK(seen[0].bytes == kBytes + 64);
            CHECK(seen[0].source == 0);
            CHECK((seen[0].target & VK_ACCESS_SHADER_READ_BIT) != 0);
            CHECK(seen[0].dispatches == before);
            for (std::size_t i = 1; i < 3; ++i) {
                CHECK(seen[i].from == mine);
                CHECK(seen[i].to == other);
                CHECK((seen[i].source & VK_ACCESS_SHADER_WRITE_BIT) != 0);
                CHECK(seen[i].target == 0);
                CHECK(seen[i].dispatches == after);
            }
            seen.clear();
            CHECK(text(program.begin(bound.recording())) == "");
            Segment segment;
            std::size_t segments = 0;
            for (; !segment.last; ++segments) {
                commands = host.begin();
                CHECK(text(program.record_segment(commands, 5000, segment)) == "");
                host.submit(commands);
                CHECK(seen.size() == (segment.last ? 3 : 1));
            }
            CHECK(segments > 2);
            host.wait_idle();
            seen.clear();
            bound.ranges[0].acquire_from = mine;  // no change
            bound.ranges[0].release_to = mine;
            bound.ranges[1].release_to = kSameQueueFamily;
            CHECK(text(program.record(host.begin(), bound.recording())) == "");
            CHECK(seen.empty());
        }
        CHECK(host.messages().empty());
    }

#if defined(__linux__)
    TEST_CASE("embed: 10,000 frames leave memory and handles as they were") {
        const auto descriptors = [] {
            return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                 std::filesystem::directory_iterator());
        };
        Host host;
        fake::Vulkan vulkan;
        {
            const Device device = Device::borrow(through(host, vulkan));
            Program program = compile_small(device, {.slots = 2});
            program.allocate();
            const Bound slots[] = {Bound(host, 1), Bound(host, 3)};
            VkCommandBuffer commands[] = {host.begin(), host.begin()};
            const std::int64_t objects = vulkan.live_objects();
            const auto forbidden = [&] {
                return vulkan.vkAllocateMemory.calls + vulkan.vkCreateBuffer.calls +
                       vulkan.vkCreateComputePipelines.calls + vulkan.vkCreateShaderModule.calls +
                       vulkan.vkCreateDescriptorPool.calls + vulkan.vkAllocateDescriptorSets.calls +
                       vulkan.vkQueueSubmit.calls + vulkan.vkWaitForFences.calls + vulkan.vkQueueWaitIdle.calls;
            };
            const std::uint64_t calls = forbidden();
            // Drivers and layers settle for some time; what leaks grows in every stretch of frames.
            constexpr std::uint32_t kStretch = 2000, kStretches = 5;
            std::uint64_t ours = 0, memory = 0, growth = UINT64_MAX;
            std::ptrdiff_t handles_open = 0;
            for (std::uint32_t frame = 0; frame < kStretch * kStretches; ++frame) {
                const std::uint32_t slot = frame % 2;
                if (frame >= 2) {
                    host.begin_again(commands[slot]);
                }
                {
                    const allocations::Counter counter;
                    REQUIRE(program.record(commands[slot], slots[slot].recording(slot)));
                    ours += counter.count();
                }
                host.submit(commands[slot]);
                if (slot == 1) {
                    host.wait_idle();
                }
                if ((frame + 1) % kStretch == 0) {
                    const std::uint64_t now = allocations::bytes_in_use();
                    if (memory > 0) {
                        growth = std::min(growth, now - std::min(now, memory));
                    } else {
                        handles_open = descriptors();
                    }
                    memory = now;
                }
            }
            CHECK(ours == 0);
            CHECK(forbidden() == calls);
            CHECK(vulkan.live_objects() == objects);
            CHECK(growth < kStretch * 64);  // bytes: less than 64 a frame
            CHECK(descriptors() == handles_open);
            CHECK(slots[0].wrong() == "");
            CHECK(slots[1].wrong() == "");
        }
        CHECK(host.messages().empty());
    }
#endif
}

}  // namespace vkf::test
