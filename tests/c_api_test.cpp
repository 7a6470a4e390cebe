// SPDX-License-Identifier: Apache-2.0
// What the C interface promises that a C program cannot see: tests/c has the rest.
#include <doctest/doctest.h>

#include <cstring>
#include <new>

#include "c/device.h"
#include "tests/allocations.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

constexpr std::int64_t kMostTokens = 20;
constexpr std::uint64_t kMostBytes = kMostTokens * SmallModel::kWidth * sizeof(float);

}  // namespace

TEST_SUITE("c") {
    TEST_CASE("c: recording allocates nothing, also when it fails") {
        Host host;
        fake::Vulkan vulkan;  // drivers and layers allocate as they like
        {
            BorrowedDevice handles = host.handles();
            handles.get_instance_proc_addr = vulkan.entry();
            vkf_device device{Device::borrow(handles)};
            vkf_graph graph;
            SmallModel::describe(graph, kMostTokens);
            const vkf_weights weights{SmallModel::load(device.device)};
            vkf_program* program = nullptr;
            vkf_compile_options options = {};
            options.struct_size = sizeof(options);
            options.slots = 2;
            REQUIRE(vkf_compile(&device, &graph, &weights, &options, &program) == VKF_OK);
            REQUIRE(vkf_program_allocate(program, nullptr) == VKF_OK);

            const Host::Buffer x = host.make_buffer(kMostBytes), y = host.make_buffer(kMostBytes);
            const std::vector<float> data = SmallModel::input(13).floats();
            std::memcpy(x.mapped, data.data(), data.size() * sizeof(float));
            vkf_buffer_range ranges[2] = {};
            ranges[0].struct_size = ranges[1].struct_size = sizeof(vkf_buffer_range);
            ranges[0].bytes = ranges[1].bytes = kMostBytes;
            ranges[0].name = "y";
            ranges[0].buffer = y.buffer;
            ranges[1].name = "x";
            ranges[1].buffer = x.buffer;
            vkf_size_setting size = {"tokens", 13};
            vkf_recording recording = {};
            recording.struct_size = sizeof(recording);
            recording.buffers = ranges;
            recording.buffer_count = 2;
            recording.sizes = &size;
            recording.size_count = 1;

            VkCommandBuffer commands = host.begin();
            vkf_result good = VKF_ERROR, unknown_size = VKF_OK, unbound = VKF_OK, null = VKF_OK, segments = VKF_ERROR;
            {
                const allocations::Counter counter;
                good = vkf_program_record(program, commands, &recording);
                recording.slot = 1;
                segments = vkf_program_begin(program, &recording);
                vkf_segment segment = {};
                for (const std::uint32_t wrong : {0u, 2u, 6u, 8192u}) {  // nothing is recorded
                    segment.struct_size = wrong;
                    CHECK(vkf_program_record_segment(program, commands, 1e12, 1, &segment) == VKF_ERROR);
                }
                segment.struct_size = sizeof(segment);
                while (segments == VKF_OK && !segment.last) {
                    segments = vkf_program_record_segment(program, commands, 1e12, 1, &segment);
                }
                size.name = "tokns";
                unknown_size = vkf_program_record(program, commands, &recording);
                size.name = "tokens";
                recording.buffer_count = 1;
                unbound = vkf_program_record(program, commands, &recording);
                null = vkf_program_record(nullptr, commands, &recording);
                CHECK(counter.count() == 0);
            }
            CHECK(good == VKF_OK);
            CHECK(segments == VKF_OK);
            CHECK(unknown_size == VKF_ERROR);
            CHECK(unbound == VKF_ERROR);
            CHECK(null == VKF_ERROR);
            host.submit(commands);
            host.wait_idle();
            std::vector<float> got(data.size());
            std::memcpy(got.data(), y.mapped, got.size() * sizeof(float));
            CHECK(difference(Tensor({13, SmallModel::kWidth}, {got.begin(), got.end()}), SmallModel::answer(13),
                             SmallModel::tolerance()) == "");
            vkf_program_destroy(program);
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("c: whatever is thrown comes out as a result and a text") {
        using c::guard;
        CHECK(guard("f", [] {}) == VKF_OK);
        CHECK(guard("f", [] { throw std::bad_alloc(); }) == VKF_ERROR_OUT_OF_HOST_MEMORY);
        CHECK(std::string(vkf_last_error()) == "f: host memory does not suffice");
        CHECK(guard("f", [] { throw Error("lost", "queue", -4); }) == -4);
        CHECK(std::string(vkf_last_error()) == "f: queue: lost (VkResult -4)");
        CHECK(guard("f", [] { throw std::out_of_range("far"); }) == VKF_ERROR);
        CHECK(std::string(vkf_last_error()) == "f: far");
        CHECK(guard("f", [] { throw 7; }) == VKF_ERROR);
        CHECK(std::string(vkf_last_error()) == "f: an exception of unknown type");
        CHECK(guard("f", [] { throw Error(std::string(5000, 'x')); }) == VKF_ERROR);
        CHECK(std::string(vkf_last_error()) == "f: " + std::string(510, 'x') + "..." + std::string(507, 'x'));
    }
}

}  // namespace vkf::test
