// SPDX-License-Identifier: Apache-2.0
// Memory that two devices, or a device and the host, both see.
#include <doctest/doctest.h>

#include <cstdlib>

#include "ops/ops.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/shared_buffer.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

#if defined(__unix__)
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;
#endif

namespace vkf::test {

namespace {

/// y = 2 x over 64 numbers, from one buffer to another, on a host's device.
void double_into(Host& host, const Device& device, VkBuffer x, VkBuffer y, std::uint64_t y_offset = 0) {
    Graph g;
    const Value in = g.input("x", {64});
    g.output("y", in + in);
    Program program = device.compile(g);
    program.allocate();
    const BufferRange ranges[] = {{"x", x, 0, 256}, {"y", y, y_offset, 256}};
    VkCommandBuffer commands = host.begin();
    CHECK(text_of(program.record(commands, ranges, {})) == "");
    host.submit(commands);
    host.wait_idle();
}

}  // namespace

TEST_SUITE("shared") {
#if defined(__unix__)
    TEST_CASE("shared: what one device writes into exported memory another reads from its import") {
        Host first(true), second(true);
        {
            const Device a = Device::borrow(first.handles());
            const Device b = Device::borrow(second.handles());
            if (!a.capabilities().external_memory_fd) {
                CHECK(contains(error_of([&] { a.make_shared_buffer(256); }), "made without VK_KHR_external_memory_fd"));
                return;
            }
            const Host::Buffer x = first.make_buffer(256);
            const Host::Buffer y = second.make_buffer(256);
            for (int i = 0; i < 64; ++i) {
                reinterpret_cast<float*>(x.mapped)[i] = 1.5f * static_cast<float>(i);
            }
            const std::uint64_t before = a.memory_use().allocated;
            {
                const SharedBuffer counted = a.make_shared_buffer(4096);
                CHECK(a.memory_use().allocated >= before + 4096);
            }
            CHECK(a.memory_use().allocated == before);
            const SharedBuffer exported = a.make_shared_buffer(256);
            CHECK(exported.bytes() == 256);
            const int descriptor = exported.export_fd();
            REQUIRE(descriptor >= 0);
            const SharedBuffer imported = b.import_fd(descriptor, 256);
            double_into(first, a, x.buffer, exported.buffer());
            double_into(second, b, imported.buffer(), y.buffer);
            for (int i = 0; i < 64; ++i) {
                CHECK(reinterpret_cast<float*>(y.mapped)[i] == 6.0f * static_cast<float>(i));
            }
            {  // an import can be handed on
                const SharedBuffer again = a.import_fd(imported.export_fd(), 256);
                for (int i = 0; i < 64; ++i) {
                    reinterpret_cast<float*>(x.mapped)[i] = static_cast<float>(i);
                }
                double_into(first, a, x.buffer, again.buffer());
                double_into(second, b, imported.buffer(), y.buffer);
                for (int i = 0; i < 64; ++i) {
                    CHECK(reinterpret_cast<float*>(y.mapped)[i] == 4.0f * static_cast<float>(i));
                }
            }
            CHECK(contains(error_of([&] { a.make_shared_buffer(0); }), "0 bytes were asked for"));
            CHECK(contains(error_of([&] { a.import_fd(-1, 256); }), "descriptor -1 is none"));
            const auto refused = [&](int other, const std::string& why) {
                CHECK(contains(error_of([&] { a.import_fd(other, 4096); }),
                               "Device::import_fd: descriptor " + std::to_string(other) + " is " + why));
                CHECK(close(other) == 0);  // it stays the caller's
            };
            int ends[2];
            REQUIRE(pipe(ends) == 0);
            refused(ends[0], "a pipe");
            refused(ends[1], "a pipe");
            REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
            refused(ends[0], "a socket");
            refused(ends[1], "a socket");
            refused(open("/", O_RDONLY), "a folder");
            const TemporaryFolder folder;
            const std::string file = (folder.path() / "small").string();
            const int small = open(file.c_str(), O_RDWR | O_CREAT, 0600);
            REQUIRE(ftruncate(small, 100) == 0);
            refused(small, "a file of 100 bytes, and the device wants 4096");
        }
        CHECK(first.messages().empty());
        CHECK(second.messages().empty());
    }

    // Not a test by itself: what the other process of the test after it runs.
    TEST_CASE("shared: child") {
        const char* descriptor = std::getenv("VKFORMER_TEST_SHARED_FD");
        if (!descriptor) {
            return;
        }
        Host host(true);
        {
            const Device device = Device::borrow(host.handles());
            const SharedBuffer shared = device.import_fd(std::atoi(descriptor), 512);
            double_into(host, device, shared.buffer(), shared.buffer(), 256);
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("shared: another process computes on exported memory") {
        Host host(true);
        {
            const Device device = Device::borrow(host.handles());
            if (!device.capabilities().external_memory_fd) {
                return;
            }
            const SharedBuffer shared = device.make_shared_buffer(512);
            const Host::Buffer x = host.make_buffer(256);
            const Host::Buffer y = host.make_buffer(256);
            for (int i = 0; i < 64; ++i) {
                reinterpret_cast<float*>(x.mapped)[i] = static_cast<float>(i);
            }
            double_into(host, device, x.buffer, shared.buffer());
            const int exported = shared.export_fd();
            const int inherited = dup(exported);  // without close-on-exec
            close(exported);
            pid_t child = 0;
            {
                const Environment variable("VKFORMER_TEST_SHARED_FD", std::to_string(inherited));
                char program[] = "/proc/self/exe";
                char which[] = "--test-case=shared: child";
                char* arguments[] = {program, which, nullptr};
                REQUIRE(posix_spawn(&child, program, nullptr, nullptr, arguments, environ) == 0);
            }
            close(inherited);
            int status = 0;
            REQUIRE(waitpid(child, &status, 0) == child);
            CHECK(WIFEXITED(status));
            CHECK(WEXITSTATUS(status) == 0);
            Graph g;
            g.output("y", contiguous(slice(g.input("x", {128}), 0, 64, 64)));
            Program program = device.compile(g);
            program.allocate();
            const BufferRange ranges[] = {{"x", shared.buffer(), 0, 512}, {"y", y.buffer, 0, 256}};
            VkCommandBuffer commands = host.begin();
            CHECK(text_of(program.record(commands, ranges, {})) == "");
            host.submit(commands);
            host.wait_idle();
            for (int i = 0; i < 64; ++i) {
                CHECK(reinterpret_cast<float*>(y.mapped)[i] == 4.0f * static_cast<float>(i));
            }
        }
        CHECK(host.messages().empty());
    }
#endif

    TEST_CASE("shared: the host's own memory as a buffer") {
        Host host(true);
        {
            const Device device = Device::borrow(host.handles());
            if (!device.capabilities().external_memory_host) {
                CHECK(contains(error_of([&] { device.shared_host_alignment(); }), "made without VK_EXT_external"));
                return;
            }
            const std::uint64_t alignment = device.shared_host_alignment();
            std::vector<std::byte> storage(3 * alignment);
            void* place = storage.data();
            std::size_t room = storage.size();
            REQUIRE(std::align(alignment, alignment, place, room));
            const std::span memory(static_cast<std::byte*>(place), alignment);
            const Host::Buffer x = host.make_buffer(256);
            for (int i = 0; i < 64; ++i) {
                reinterpret_cast<float*>(x.mapped)[i] = static_cast<float>(i);
            }
            const SharedBuffer shared = device.import_host(memory);
            CHECK(shared.bytes() == alignment);
            double_into(host, device, x.buffer, shared.buffer());
            for (int i = 0; i < 64; ++i) {
                CHECK(reinterpret_cast<const float*>(memory.data())[i] == 2.0f * static_cast<float>(i));
            }
            CHECK(contains(error_of([&] { device.import_host(memory.subspan(4, 64)); }), "must be multiples of"));
            CHECK(contains(error_of([&] { device.import_host({}); }), "0 bytes"));
            CHECK(contains(error_of([&] {
                               device.import_host({static_cast<std::byte*>(nullptr), alignment});
                           }),
                           "the memory is a null pointer"));
            CHECK(contains(error_of([&] {
                               device.import_host({memory.data(), std::size_t{1} << 45});
                           }),
                           "35184372088832 bytes were asked for; one allocation has at most "));
            CHECK(contains(error_of([&] { shared.export_fd(); }), "imported from the host"));
            CHECK(contains(error_of([&] { device.import_hardware_buffer(nullptr); }), "made without VK_ANDROID"));
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("shared: calls that fail leak nothing") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        {
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            if (device.capabilities().external_memory_fd) {
                const std::int64_t objects = vulkan.live_objects();
                vulkan.vkAllocateMemory.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY);
                CHECK(contains(error_of([&] { device.make_shared_buffer(256); }), "VK_ERROR_OUT_OF_DEVICE_MEMORY"));
                vulkan.vkCreateBuffer.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY);
                CHECK(contains(error_of([&] { device.make_shared_buffer(256); }), "vkCreateBuffer"));
#if defined(__unix__)
                {
                    const SharedBuffer shared = device.make_shared_buffer(256);
                    const int descriptor = shared.export_fd();
                    const std::ptrdiff_t open = open_descriptors();
                    for (const int call :
                         // the descriptor stays the caller's when the import fails, at any point
                         {0, 1}) {
                        call == 0 ? vulkan.vkAllocateMemory.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY)
                                  : vulkan.vkBindBufferMemory.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY);
                        CHECK(error_of([&] { device.import_fd(descriptor, 256); }) != "");
                        CHECK(fcntl(descriptor, F_GETFD) >= 0);
                        CHECK(open_descriptors() == open);
                    }
                    { const SharedBuffer imported = device.import_fd(descriptor, 256); }
                    CHECK(fcntl(descriptor, F_GETFD) < 0);
                    CHECK((open_descriptors() == open - 1 || open == 0));
                }
#endif
                CHECK(vulkan.live_objects() == objects);
            }
        }
        CHECK(vulkan.live_objects() == 0);
    }
}

}  // namespace vkf::test
