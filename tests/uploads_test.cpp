// SPDX-License-Identifier: Apache-2.0
// A device without a queue of ours: what is to be copied goes into the host's command buffers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "ops/ops.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/bound_recording.h"
#include "tests/fake_vulkan.h"

namespace vkf::test {

TEST_SUITE("uploads") {
    TEST_CASE("uploads: a device for which the host submits uploads by the host's command buffers") {
        Host host;
        fake::Vulkan vulkan;
        {
            BorrowedDevice handles = through(host, vulkan);
            handles.host_submits = true;
            // its memory is not the host's
            const Device device = Device::borrow(handles, {.minimum_profile = true});
            Graph g;
            const Value x = g.input("x", {300});
            const Value cache = copy_into(g.state("cache", {300}), g.state("cache", {300}) + x);
            g.output("y", cache * g.weight("w", {300}) + g.constant("half", {1}, std::vector<float>{0.5f}));
            const std::vector<float> threes(300, 3.0f);
            const std::vector<float> ones(300, 1.0f);
            const Weights weights =
                device.load(std::vector{HostTensor{"w", DType::f32, {300}, std::as_bytes(std::span(threes))}});
            CHECK(device.pending_uploads() == 1200);
            const HostTensor matrix{"m", DType::f32, {3, 100}, std::as_bytes(std::span(ones))};
            // Such a device packs, if it has a queue.
            Insides::core(device).capabilities.type = DeviceType::discrete;
            CHECK(device.load({&matrix, 1}, {.matrices = WeightType::int8}).bytes_packed_on_device() == 0);
            const LoadOptions on_device{.matrices = WeightType::int8, .pack_on = PackOn::device};
            CHECK(contains(message_of([&] { device.load({&matrix, 1}, on_device); }), "for which the host submits"));
            CHECK(device.pending_uploads() == 1200);
            {
                const Weights dropped =
                    device.load(std::vector{HostTensor{"v", DType::f32, {300}, std::as_bytes(std::span(ones))}});
                CHECK(device.pending_uploads() == 2400);
            }
            CHECK(device.pending_uploads() == 1200);
            State state = device.make_state({&g});
            Program program = device.compile(g, weights, {.name = "layer", .state = state});
            program.allocate();
            CHECK(contains(message_of([&] { program.run(); }), "the host submits for this device"));
            const Host::Buffer in = host.make_buffer(1280);
            const Host::Buffer out = host.make_buffer(1280);
            std::memcpy(in.mapped, ones.data(), 1200);
            const BufferRange ranges[] = {{"x", in.buffer, 0, 1280}, {"y", out.buffer, 0, 1280}};
            CHECK(contains(text(program.record(host.begin(), ranges, {})), "wait for Device::record_upload()"));

            const Host::Buffer staging = host.make_buffer(4096, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
            CHECK(contains(text(device.record_upload(host.begin(), {staging.buffer, 0, 100, nullptr})), "not mapped"));
            CHECK(contains(text(device.record_upload(host.begin(), {staging.buffer, 2, 100, staging.mapped})), "at 2"));
            CHECK(contains(text(device.record_upload(host.begin(), {})), "without a buffer"));
            const auto upload = [&] {
                int rounds = 0;
                for (std::uint64_t before = ~std::uint64_t{0}; device.pending_uploads() != 0; ++rounds) {
                    REQUIRE(device.pending_uploads() < before);
                    before = device.pending_uploads();
                    VkCommandBuffer commands = host.begin();
                    CHECK(text(device.record_upload(commands, {staging.buffer, 8, 500, staging.mapped + 8})) == "");
                    host.submit(commands);
                    host.wait_idle();
                }
                return rounds;
            };
            CHECK(upload() == 3);  // 1200 bytes of weights and 4 of the constant
            const auto step = [&](float want) {
                VkCommandBuffer commands = host.begin();
                CHECK(text(program.record(commands, ranges, {})) == "");
                host.submit(commands);
                host.wait_idle();
                const auto* y = reinterpret_cast<const float*>(out.mapped);
                CHECK(std::all_of(y, y + 300, [&](float v) { return v == want; }));
            };
            step(3.5f);
            step(6.5f);
            state.clear();
            CHECK(device.pending_uploads() >= 1200);
            CHECK(contains(text(program.record(host.begin(), ranges, {})), "wait for Device::record_upload()"));
            CHECK(upload() == 1);  // fills need no staging
            step(3.5f);
            CHECK(vulkan.vkQueueSubmit.calls == 0);
            CHECK(vulkan.vkGetDeviceQueue.calls == 0);
        }
        CHECK(vulkan.live_objects() == 0);
        CHECK(host.messages().empty());
    }

    TEST_CASE("uploads: without a queue a state is cleared in the order of the recordings, wherever its memory is") {
        Host host;
        {
            BorrowedDevice handles = host.handles();
            handles.host_submits = true;
            const Device device = Device::borrow(handles);
            Graph g;
            const Value sum = g.state("sum", {4});
            g.output("y", contiguous(copy_into(sum, sum + g.input("x", {4}))));
            State state = device.make_state({&g});
            Program program = device.compile(g, Weights(), {.state = state});
            program.allocate();
            const Host::Buffer buffer = host.make_buffer(512);
            const std::vector<float> ones(4, 1.0f);
            std::memcpy(buffer.mapped, ones.data(), 16);
            const BufferRange ranges[] = {{"x", buffer.buffer, 0, 16}, {"y", buffer.buffer, 256, 16}};
            const Host::Buffer staging = host.make_buffer(4096, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
            const auto upload = [&] {
                while (device.pending_uploads() != 0) {
                    VkCommandBuffer commands = host.begin();
                    REQUIRE(text(device.record_upload(commands, {staging.buffer, 0, 4096, staging.mapped})) == "");
                    host.submit(commands);
                }
            };
            const auto step = [&] {
                VkCommandBuffer commands = host.begin();
                CHECK(text(program.record(commands, ranges, {})) == "");
                host.submit(commands);
                host.wait_idle();
                return reinterpret_cast<const float*>(buffer.mapped + 256)[0];
            };
            upload();
            CHECK(step() == 1.0f);
            CHECK(step() == 2.0f);
            VkCommandBuffer before = host.begin();
            CHECK(text(program.record(before, ranges, {})) == "");
            state.clear();
            CHECK(device.pending_uploads() >= 16);
            VkCommandBuffer zeros = host.begin();
            CHECK(text(device.record_upload(zeros, {})) == "");  // which need no staging
            host.submit(before);
            host.submit(zeros);
            host.wait_idle();
            CHECK(step() == 1.0f);
        }
        CHECK(host.messages().empty());
    }
}

}  // namespace vkf::test
