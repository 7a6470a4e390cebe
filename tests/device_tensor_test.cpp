// SPDX-License-Identifier: Apache-2.0
// Tensors that programs leave on the device for one another.
#include "runtime/device/device_tensor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "layers/sequences.h"
#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/bound_recording.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

/// y = softmax(2 x), of up to 9 rows of 5.
Program doubling(const Device& on) {
    Graph g;
    g.output("y", softmax(scale(g.input("x", {g.symbol("rows", 9), 5}), 2)));
    return on.compile(g, {}, {.name = "first"});
}

/// z = y + b, of up to 300 rows: more than doubling() has.
Program adding(const Device& on) {
    Graph g;
    const Value y = g.input("y", {g.symbol("rows", 300), 5});
    g.output("z", y + g.input("b", {5}));
    return on.compile(g, {}, {.name = "second"});
}

std::vector<float> floats_in(const DeviceTensor& tensor) {
    std::vector<float> out(tensor.bytes() / sizeof(float));
    tensor.read(std::as_writable_bytes(std::span(out)));
    return out;
}

}  // namespace

TEST_SUITE("device tensor") {
    TEST_CASE("device tensor: what one program wrote the next one reads, and nothing is copied") {
        for (const bool unified : {true, false}) {
            CAPTURE(unified);
            Host host;
            fake::Vulkan vulkan;
            {
                const Device device = Device::borrow(through(host, vulkan));
                bool& seen = Insides::core(device).capabilities.unified_memory;
                seen = seen && unified;
                Program first = doubling(device), second = adding(device);
                const Tensor b = random_tensor({5}, 2);
                upload(second, "b", b);
                for (const std::int64_t rows : {7, 0, 9}) {
                    CAPTURE(rows);
                    const Tensor x = random_tensor({rows, 5}, 1);
                    DeviceTensor between = device.make_tensor({rows, 5}), last = device.make_tensor({rows, 5});
                    first.set("rows", rows);
                    second.set("rows", rows);
                    upload(first, "x", x);
                    first.bind("y", between);
                    second.bind("y", between);
                    second.bind("z", last);
                    const std::uint64_t before = vulkan.vkCmdCopyBuffer.calls;
                    first.run();
                    between = {};  // the programs keep it
                    second.run();
                    // of x and b alone
                    CHECK(vulkan.vkCmdCopyBuffer.calls - before <= (seen ? 0u : 2u));
                    const Tensor want = reference::add(reference::softmax(reference::scale(x, 2)), b);
                    const std::vector<float> got = floats_in(last);
                    CHECK(difference({{rows, 5}, {got.begin(), got.end()}}, want) == "");
                }
            }
            CHECK(host.messages().empty());
        }
    }

    TEST_CASE("device tensor: a binding ends with an upload, an empty tensor, or another one") {
        Program first = doubling(device());
        const Tensor x = random_tensor({3, 5}, 1), other = random_tensor({3, 5}, 2);
        DeviceTensor given = device().make_tensor({3, 5});
        const std::vector<float> numbers = x.floats();
        given.write(std::as_bytes(std::span(numbers)));
        CHECK(floats_in(given) == numbers);
        CHECK(given.read().size() == given.bytes());
        first.set("rows", 3);
        const auto wrong = [&](const Tensor& of) {
            return difference(download(first, "y"), reference::softmax(reference::scale(of, 2)));
        };
        first.bind("x", given);
        first.run();
        CHECK(wrong(x) == "");
        upload(first, "x", other);
        first.run();
        CHECK(wrong(other) == "");
        first.bind("x", given);
        first.submit().wait();
        CHECK(wrong(x) == "");
        first.bind("x", {});
        CHECK(contains(error_of([&] { first.run(); }), "input x: was never uploaded"));
        const DeviceTensor flat = given.reshape({15});
        CHECK(flat.shape() == Sizes{15});
        CHECK(flat.reshape({3, 5}).read() == given.read());
        first.bind("x", flat.reshape({3, 5}));
        first.run();
        CHECK(wrong(x) == "");
        const DeviceTensor result = device().make_tensor({3, 5});
        first.bind("y", result);
        CHECK(contains(error_of([&] { first.download("y"); }), "output y: is bound to a tensor"));
        first.run();
        first.bind("y", {});
        CHECK(contains(error_of([&] { first.download("y"); }), "no run has finished yet"));
    }

    TEST_CASE("device tensor: 16 bits, and numbers that are whole") {
        Graph g;
        const Value x = g.input("x", {3}, DType::f16), i = g.input("i", {3}, DType::i32);
        g.output("y", to(embedding(i, to(reshape(x, {3, 1}), DType::f32)), DType::bf16));
        Program program = device().compile(g);
        DeviceTensor halves = device().make_tensor({3}, DType::f16), ids = device().make_tensor({3}, DType::i32),
                     out = device().make_tensor({3, 1}, DType::bf16);
        const std::vector<std::uint16_t> bits{0x3c00, 0xc000, 0x4400};  // 1, -2, 4
        const std::vector<std::int32_t> order{2, 0, 1};
        halves.write(std::as_bytes(std::span(bits)));
        ids.write(std::as_bytes(std::span(order)));
        program.bind("x", halves);
        program.bind("i", ids);
        program.bind("y", out);
        program.run();
        std::vector<std::uint16_t> got(3);
        out.read(std::as_writable_bytes(std::span(got)));
        CHECK(got == std::vector<std::uint16_t>{0x4080, 0x3f80, 0xc000});
    }

    TEST_CASE("device tensor: a write waits for runs that read the tensor") {
        constexpr std::int64_t kRows = 256;
        Graph g;
        const Value x = g.input("x", {kRows, kRows}), last = g.input("last", {kRows, kRows});
        Value y = x;
        for (int i = 0; i < 12; ++i) {
            y = matmul(y, x);
        }
        g.output("y", add(y, last));
        Program program = device().compile(g);
        DeviceTensor tensor = device().make_tensor({kRows, kRows});
        const std::vector<float> zeros(kRows * kRows), ones(kRows * kRows, 1.0f);
        program.upload("x", zeros);
        tensor.write(std::as_bytes(std::span(ones)));
        program.bind("last", tensor);
        Ticket ticket = program.submit();
        tensor.write(std::as_bytes(std::span(zeros)));
        ticket.wait();
        CHECK(program.download("y") == ones);
        program.run();
        CHECK(program.download("y") == zeros);
    }

    TEST_CASE("device tensor: no run reads a part of what is written, however small the staging block") {
        constexpr std::int64_t kNumbers = 1 << 16;
        DeviceOptions options;
        options.staging_bytes = 1 << 12;
        const Device own = Device::create(options);
        Graph g;
        g.output("y", scale(g.input("x", {kNumbers}), 2));
        Program program = own.compile(g);
        DeviceTensor tensor = own.make_tensor({kNumbers});
        program.bind("x", tensor);
        const std::vector<float> written[] = {std::vector<float>(kNumbers, 1.0f), std::vector<float>(kNumbers, 2.0f)};
        tensor.write(std::as_bytes(std::span(written[0])));
        std::atomic<bool> done = false;
        std::thread writer([&] {
            for (std::size_t n = 0; !done; ++n) {
                tensor.write(std::as_bytes(std::span(written[n % 2])));
            }
        });
        int parts = 0;
        for (int run = 0; run < 100; ++run) {
            program.run();
            const std::vector<float> y = program.download("y");
            parts += std::all_of(y.begin(), y.end(), [&](float v) { return v == y[0]; }) ? 0 : 1;
        }
        done = true;
        writer.join();
        CHECK(parts == 0);
    }

    TEST_CASE("device tensor: a write is one submission while a program has the tensor, and else bounded") {
        constexpr std::int64_t kNumbers = 1 << 16;
        fake::Vulkan vulkan;
        std::uint64_t most = 0;
        vulkan.vkCreateBuffer.instead = [&](VkDevice d, const VkBufferCreateInfo* info, auto... more) {
            most = std::max<std::uint64_t>(most, info->size);
            return vulkan.vkCreateBuffer.real(d, info, more...);
        };
        const Device own = Device::create({.staging_bytes = 1 << 12, .get_instance_proc_addr = vulkan.entry()});
        Insides::core(own).capabilities.unified_memory = false;
        Graph g;
        g.output("y", scale(g.input("x", {kNumbers}), 2));
        DeviceTensor tensor = own.make_tensor({kNumbers});
        const std::vector<float> ones(kNumbers, 1.0f);
        const auto staging = [&] {
            most = 0;
            tensor.write(std::as_bytes(std::span(ones)));
            return most;
        };
        {
            Program first = own.compile(g), second = own.compile(g);
            CHECK(staging() == 1 << 12);
            first.bind("x", tensor);
            first.bind("x", tensor);
            second.bind("x", tensor.reshape({kNumbers}));
            CHECK(staging() == tensor.bytes());
            first.bind("x", {});
            CHECK(staging() == tensor.bytes());
            second.upload("x", ones);
            CHECK(staging() == 1 << 12);
            first.bind("x", tensor);
            CHECK(staging() == tensor.bytes());
        }
        CHECK(staging() == 1 << 12);  // the program has gone
    }

    TEST_CASE("device tensor: wrong use is an error, and the next right use works") {
        Program first = doubling(device());
        const DeviceTensor t = device().make_tensor({4, 5});
        CHECK(contains(error_of([&] { first.bind("z", t); }), "no input or output \"z\"; it has: x, y"));
        CHECK(error_of([&] {
                  first.bind("x", device().make_tensor({4, 5}, DType::i32));
              }) == "first: input x: is F32, and a tensor of I32 was given");
        first.bind("x", t);
        CHECK(error_of([&] { first.run(); }) ==
              "first: input x: is (9, 5) at the sizes set now, and a tensor of (4, 5) is bound");
        first.set("rows", 4);
        first.bind("y", t.reshape({4, 5}));
        CHECK(error_of([&] { first.run(); }) == "first: output y: is bound to the same memory as x");
        first.bind("y", {});
        CHECK_NOTHROW(first.run());
        CHECK(error_of([&] { device().make_tensor({2, -1}); }) == "a tensor: cannot have the shape (2, -1)");
        CHECK(contains(error_of([&] { device().make_tensor({1 << 30, 1 << 30, 1 << 30}); }), "cannot have the shape"));
        CHECK(contains(error_of([&] { device().make_tensor({2}, DType::i64); }), "is I64; there are F32"));
        CHECK(error_of([&] { t.reshape({3, 5}); }) == "a tensor: is (4, 5), and cannot be (3, 5)");
        std::vector<std::byte> few(3);
        CHECK(contains(error_of([&] { t.read(few); }), "of 80 bytes; there is room for 3"));
        CHECK(contains(error_of([&] { DeviceTensor(t).write(few); }), "of 80 bytes; 3 were given"));
        CHECK(error_of([&] { DeviceTensor().read(); }) == "DeviceTensor: there is no tensor");
        Host host;
        {
            const Device other = Device::borrow(host.handles());
            CHECK(error_of([&] {
                      first.bind("x", other.make_tensor({4, 5}));
                  }) == "first: input x: a tensor of another device was given");
            BorrowedDevice deferred = host.handles();
            deferred.host_submits = true;
            CHECK(contains(error_of([&] { Device::borrow(deferred).make_tensor({2}); }), "the host submits"));
        }
        Graph g;
        const Value q = g.input("q", {4, 1, 8}), lengths = g.input("lengths", {2}, DType::i32);
        g.output("y", packed_attention(q, q, q, lengths, lengths).y);
        Program packed = device().compile(g, {}, {.name = "packed"});
        CHECK(contains(error_of([&] { packed.bind("lengths", device().make_tensor({2}, DType::i32)); }),
                       "input lengths: has numbers that are checked as they are uploaded"));
        CHECK(first.shape("y") == Sizes{4, 5});
    }
}

}  // namespace vkf::test
