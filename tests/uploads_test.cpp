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
#include "tests/child.h"
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
            CHECK(contains(error_of([&] { device.load({&matrix, 1}, on_device); }), "for which the host submits"));
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
            CHECK(contains(error_of([&] { program.run(); }), "the host submits for this device"));
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

    TEST_CASE("uploads: what a dropped command buffer held waits again") {
        Host host;
        {
            BorrowedDevice handles = host.handles();
            handles.host_submits = true;
            {
                const Device forgetful = Device::borrow(handles);
                CHECK(contains(text(forgetful.uploads_dropped()), "is not kept (BorrowedDevice::keep_uploads)"));
            }
            handles.keep_uploads = true;
            const Device device = Device::borrow(handles, {.minimum_profile = true});
            Graph g;
            const Value state = g.state("kept", {300});
            const Value kept = copy_into(state, state + g.input("x", {300}));
            g.output("y", kept * g.weight("w", {300}));
            const std::vector<float> threes(300, 3.0f), ones(300, 1.0f);
            const HostTensor w{"w", DType::f32, {300}, std::as_bytes(std::span(threes))};
            const Weights weights = device.load({&w, 1});
            Program program = device.compile(g, weights, {.state = device.make_state({&g})});
            program.allocate();
            const Host::Buffer in = host.make_buffer(1280), out = host.make_buffer(1280);
            const Host::Buffer staging = host.make_buffer(4096, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
            std::memcpy(in.mapped, ones.data(), 1200);
            const BufferRange ranges[] = {{"x", in.buffer, 0, 1280}, {"y", out.buffer, 0, 1280}};
            const std::uint64_t all = device.pending_uploads();
            const auto record = [&](std::uint64_t staging_bytes) {
                VkCommandBuffer commands = host.begin();
                CHECK(text(device.record_upload(commands, {staging.buffer, 0, staging_bytes, staging.mapped})) == "");
                return commands;
            };
            const auto works = [&](float want) {
                VkCommandBuffer commands = host.begin();
                REQUIRE(text(program.record(commands, ranges, {})) == "");
                host.submit(commands);
                host.wait_idle();
                const auto* y = reinterpret_cast<const float*>(out.mapped);
                return std::all_of(y, y + 300, [&](float v) { return v == want; });
            };
            // All of it is dropped, then the part behind what was executed.
            record(4096);
            CHECK(device.pending_uploads() == 0);
            CHECK(device.recorded_uploads() == all);
            CHECK(text(device.uploads_dropped()) == "");
            CHECK(device.pending_uploads() == all);
            CHECK(device.recorded_uploads() == all);  // a position that never goes back
            CHECK(contains(text(program.record(host.begin(), ranges, {})), "wait for Device::record_upload()"));
            // What is told late of a frame that was dropped says nothing of those after it.
            record(500);
            device.uploads_finished(all);
            CHECK(text(device.uploads_dropped()) == "");
            CHECK(device.pending_uploads() == all);
            host.submit(record(500));
            host.wait_idle();
            const std::uint64_t executed = device.recorded_uploads();
            CHECK(executed == all + 1000);
            {
                const HostTensor gone{"gone", DType::f32, {300}, std::as_bytes(std::span(ones))};
                const Weights dropped = device.load({&gone, 1});
                record(4096);  // to the end, with what is gone before it is executed
            }
            CHECK(device.pending_uploads() == 0);
            device.uploads_finished(executed);
            CHECK(text(device.uploads_dropped()) == "");
            CHECK(device.pending_uploads() == all - 500);
            CHECK(device.recorded_uploads() > executed);
            host.submit(record(4096));
            host.wait_idle();
            CHECK(works(3.0f));
            // What has been executed does not come again: the state would be zeroed.
            device.uploads_finished(device.recorded_uploads());
            CHECK(text(device.uploads_dropped()) == "");
            CHECK(device.pending_uploads() == 0);
            CHECK(works(6.0f));
            // What a buffer of ours held goes with it.
            for (const bool told : {false, true}) {
                Weights more = device.load({&w, 1});
                record(700);
                if (told) {
                    device.uploads_finished(device.recorded_uploads());
                }
                more = {};
                CHECK(device.pending_uploads() == 0);
                device.uploads_finished(device.recorded_uploads());
                CHECK(text(device.uploads_dropped()) == "");
                CHECK(device.pending_uploads() == 0);
            }
            CHECK(works(9.0f));
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("uploads: copies to the same bytes wait for each other, and others do not") {
        Host host;
        fake::Vulkan vulkan;
        {
            BorrowedDevice handles = through(host, vulkan);
            handles.host_submits = true;
            const Device device = Device::borrow(handles, {.minimum_profile = true});
            const std::vector<float> ones(300, 1.0f), twos(300, 2.0f);
            const auto of = [](const std::vector<float>& numbers) { return std::as_bytes(std::span(numbers)); };
            const HostTensor w{"w", DType::f32, {300}, of(ones)};
            const Weights one = device.load({&w, 1});
            Graph g;
            const Value kept = g.state("kept", {300});
            g.output("y", kept + g.input("x", {300}));
            State state = device.make_state({&g});
            const Host::Buffer staging = host.make_buffer(16384, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
            std::string order;  // of barriers, fills and copies
            vulkan.vkCmdPipelineBarrier.instead = [&](auto... a) {
                order += 'b';
                vulkan.vkCmdPipelineBarrier.real(a...);
            };
            vulkan.vkCmdFillBuffer.instead = [&](auto... a) {
                order += 'f';
                vulkan.vkCmdFillBuffer.real(a...);
            };
            vulkan.vkCmdCopyBuffer.instead = [&](auto... a) {
                order += 'c';
                vulkan.vkCmdCopyBuffer.real(a...);
            };
            const auto upload = [&] {
                order.clear();
                VkCommandBuffer commands = host.begin();
                REQUIRE(text(device.record_upload(commands, {staging.buffer, 0, 16384, staging.mapped})) == "");
                host.submit(commands);
                host.wait_idle();
                return order;
            };
            CHECK(upload().starts_with("bcbf"));
            state.write("kept", of(ones));
            state.write("kept", of(twos));
            const Weights two = device.load({&w, 1});
            state.write("kept", of(ones));
            state.write("kept", of(twos));
            CHECK(upload() == "bcbccbcbc");
            Program program = device.compile(g, {}, {.state = state});
            program.allocate();
            const Host::Buffer in = host.make_buffer(1280), out = host.make_buffer(1280);
            const BufferRange ranges[] = {{"x", in.buffer, 0, 1280}, {"y", out.buffer, 0, 1280}};
            std::memcpy(in.mapped, ones.data(), 1200);
            VkCommandBuffer commands = host.begin();
            REQUIRE(text(program.record(commands, ranges, {})) == "");
            host.submit(commands);
            host.wait_idle();
            CHECK(reinterpret_cast<const float*>(out.mapped)[299] == 3.0f);
        }
        CHECK(host.messages().empty());
    }

#if defined(__unix__)
    TEST_CASE("uploads: the child of a fork lets go of what waits, whoever records meanwhile") {
        Host host;
        fake::Vulkan vulkan;
        {
            BorrowedDevice handles = through(host, vulkan);
            handles.host_submits = handles.keep_uploads = true;
            const Device device = Device::borrow(handles, {.minimum_profile = true});
            const std::vector<float> ones(300, 1.0f);
            const HostTensor w{"w", DType::f32, {300}, std::as_bytes(std::span(ones))};
            const Weights weights = device.load({&w, 1});
            Weights others = device.load({&w, 1});
            const Host::Buffer staging = host.make_buffer(4096, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
            int children = 0;
            vulkan.vkCmdCopyBuffer.instead = [&](auto... a) {  // with the lock of the uploads
                if (++children == 1) {
                    CHECK(ends_in_child([&] {
                        others = {};
                        device.uploads_finished(1200);
                        if (device.uploads_dropped()) {
                            _exit(1);
                        }
                    }));
                }
                vulkan.vkCmdCopyBuffer.real(a...);
            };
            VkCommandBuffer commands = host.begin();
            CHECK(text(device.record_upload(commands, {staging.buffer, 0, 4096, staging.mapped})) == "");
            CHECK(children == 2);
            host.submit(commands);
            host.wait_idle();
        }
        CHECK(host.messages().empty());
    }
#endif
}

}  // namespace vkf::test
