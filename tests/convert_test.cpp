// SPDX-License-Identifier: Apache-2.0
// to(), and inputs and outputs of f16 and bf16: number by number, and wherever they lie.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "ops/ops.h"
#include "tests/believed.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/sixteen.h"

namespace vkf::test {

namespace {

constexpr std::uint32_t kNanPatterns[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u,
                                          0x7fa5a5a5u, 0x7f802000u, 0xffffffffu};

/// A format's digits behind the point and its smallest exponent.
struct Format {
    int digits, least;
    std::uint16_t infinity;
};

Format format_of(DType type) { return type == DType::f16 ? Format{10, -14, 0x7c00} : Format{7, -126, 0x7f80}; }

bool is_nan(DType type, std::uint16_t bits) { return (bits & 0x7fffu) > format_of(type).infinity; }

/// Gives the bits that the format's definition says; those of a NaN are its own affair.
std::uint16_t expected_bits(DType type, float x) {
    const Format f = format_of(type);
    const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000u : 0u);
    const double magnitude = std::abs(static_cast<double>(x));
    if (std::isinf(magnitude)) {
        return sign | f.infinity;
    }
    const int exponent = magnitude == 0 ? f.least : std::max(std::ilogb(magnitude), f.least);
    const auto steps = static_cast<std::int64_t>(std::nearbyint(std::ldexp(magnitude, f.digits - exponent)));
    const std::int64_t bits = (static_cast<std::int64_t>(exponent - f.least) << f.digits) + steps;
    return sign | static_cast<std::uint16_t>(std::min<std::int64_t>(bits, f.infinity));
}

double expected_number(DType type, std::uint16_t bits) {
    const Format f = format_of(type);
    const int magnitude = bits & 0x7fff;
    const int exponent = magnitude >> f.digits;
    const int fraction = magnitude & ((1 << f.digits) - 1);
    const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
    if (magnitude >= f.infinity) {
        return magnitude == f.infinity ? sign * std::numeric_limits<double>::infinity()
                                       : std::numeric_limits<double>::quiet_NaN();
    }
    return exponent == 0 ? sign * std::ldexp(fraction, f.least - f.digits)
                         : sign * std::ldexp(fraction + (1 << f.digits), f.least - f.digits + exponent - 1);
}

Bits every_pattern() {
    Bits out(65536);
    std::iota(out.begin(), out.end(), std::uint16_t{0});
    return out;
}

/// Each number of the type, what lies half-way to the next, the numbers of fp32 beside that, and
/// more than the type has: fp32's subnormal numbers, its largest, NaNs of every kind.
std::vector<float> boundaries(DType type) {
    std::vector<float> out;
    const Format f = format_of(type);
    for (const std::uint16_t bits : every_pattern()) {
        if ((bits & 0x7fffu) >= f.infinity) {
            continue;
        }
        const double number = expected_number(type, bits);
        const double step = std::ldexp(1, std::max(number == 0 ? f.least : std::ilogb(number), f.least) - f.digits);
        const auto tie = static_cast<float>(number + std::copysign(step / 2, number));
        for (const float x : {static_cast<float>(number), tie, std::nextafter(tie, 0.0f),
                              std::nextafter(tie, std::copysign(std::numeric_limits<float>::max(), tie))}) {
            out.push_back(x);
        }
    }
    for (const std::uint32_t bits :
         {0x00000001u, 0x80000001u, 0x007fffffu, 0x00400000u, 0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u}) {
        out.push_back(std::bit_cast<float>(bits));
    }
    for (const std::uint32_t bits : kNanPatterns) {
        out.push_back(std::bit_cast<float>(bits));
    }
    return out;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& numbers) {
    std::vector<std::uint32_t> out(numbers.size());
    std::memcpy(out.data(), numbers.data(), numbers.size() * sizeof(float));
    return out;
}

std::int64_t count_of(const std::vector<float>& numbers) { return static_cast<std::int64_t>(numbers.size()); }

}  // namespace

TEST_SUITE("convert") {
    TEST_CASE("convert: the host narrows and widens as the formats say") {
        for (const DType type : kSixteen) {
            CAPTURE(name_of(type));
            std::size_t wrong = 0;
            for (const float x : boundaries(type)) {
                const std::uint16_t got = narrowed(type, x);
                wrong += std::isnan(x) ? !is_nan(type, got) || (got >> 15 != 0) != std::signbit(x)
                                       : got != expected_bits(type, x);
            }
            CHECK(wrong == 0);
            for (const std::uint16_t bits : every_pattern()) {
                const float got = widened(type, bits);
                const auto want = static_cast<float>(expected_number(type, bits));
                wrong += is_nan(type, bits) ? !std::isnan(got) || std::signbit(got) != (bits >> 15 != 0)
                                            : std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(want);
                wrong += !is_nan(type, bits) && narrowed(type, got) != bits;
            }
            CHECK(wrong == 0);
        }
    }

    TEST_CASE("convert: the device makes the host's bits, of every number there is") {
        for (const DType type : kSixteen) {
            CAPTURE(name_of(type));
            const DType other = type == DType::f16 ? DType::bf16 : DType::f16;
            const std::vector<float> numbers = boundaries(type);
            Graph g;
            g.output("narrow", to(g.input("numbers", {count_of(numbers)}), type));
            const Value x = g.input("bits", {65536}, type);
            g.output("wide", to(x, DType::f32));
            g.output("other", to(x, other));
            g.output("copy", contiguous(x));
            Program program = device().compile(g);
            program.upload("numbers", numbers);
            program.upload("bits", every_pattern());
            program.run();
            Bits narrow, others;
            std::vector<float> wide;
            for (const float number : numbers) {
                narrow.push_back(narrowed(type, number));
            }
            for (const std::uint16_t bits : every_pattern()) {
                wide.push_back(widened(type, bits));
                others.push_back(narrowed(other, wide.back()));
            }
            CHECK(program.download_bits("narrow") == narrow);
            CHECK(bits_of(program.download("wide")) == bits_of(wide));
            CHECK(program.download_bits("other") == others);
            CHECK(program.download_bits("copy") == every_pattern());
        }
    }

    TEST_CASE("convert: floats of the host are converted on their way, bits are not") {
        for (const DType type : kSixteen) {
            const std::vector<float> numbers = boundaries(type);
            Graph g;
            g.output("y", contiguous(g.input("x", {count_of(numbers)}, type)));
            Program program = device().compile(g);
            program.upload("x", numbers);
            program.run();
            Bits want;
            std::vector<float> wide;
            for (const float number : numbers) {
                want.push_back(narrowed(type, number));
                wide.push_back(widened(type, want.back()));
            }
            CHECK(program.download_bits("y") == want);
            CHECK(bits_of(program.download("y")) == bits_of(wide));
            Bits bits(numbers.size());
            std::vector<float> floats(numbers.size());
            program.download("y", std::span(bits));
            program.download("y", std::span(floats));
            CHECK(bits == want);
            CHECK(bits_of(floats) == bits_of(wide));
        }
    }

    TEST_CASE("convert: every length and rank, where memory is the host's and where it is not") {
        for (const bool unified : {true, false}) {
            const Believed believed([&](Capabilities& c) { c.unified_memory = c.unified_memory && unified; });
            for (const DType type : kSixteen) {
                for (const Sizes& shape :
                     {Sizes{}, Sizes{1}, Sizes{2}, Sizes{3}, Sizes{257}, Sizes{5, 7}, Sizes{2, 3, 4}, Sizes{3, 1, 3},
                      Sizes{1, 1, 5, 1, 7}, Sizes{2, 3, 5, 3, 7}}) {
                    CAPTURE(product(shape));
                    const Tensor a = whole_numbers(shape);
                    OpCheck check;
                    const Value x = check.input("x", a, type), y = check.input("y", a);
                    CHECK(check.difference(to(x, DType::f32), a, exactly()) == "");
                    CHECK(check.difference(to(y, type), a, exactly()) == "");
                    CHECK(check.difference(scale(to(x, DType::f32), 2), reference::scale(a, 2), exactly()) == "");
                    CHECK(check.difference(to(to(to(y, DType::f16), DType::bf16), DType::f32), a, exactly()) == "");
                }
            }
        }
    }

    TEST_CASE("convert: sizes set at run time, of none too") {
        Graph g;
        const Dim n = g.symbol("n", 50);
        const Value x = g.input("x", {n, 3}, DType::f16);
        g.output("wide", to(x, DType::f32));
        g.output("turned", to(transpose(x, 0, 1), DType::bf16));
        g.output("part", contiguous(slice(x, 1, 1, 2)));
        Program program = device().compile(g);
        for (const std::int64_t length : {50, 7, 1, 0, 12}) {
            CAPTURE(length);
            const Tensor a = whole_numbers({length, 3}, static_cast<std::uint32_t>(length));
            program.set("n", length);
            upload(program, "x", a);
            program.run();
            CHECK(difference(download(program, "wide"), a, exactly()) == "");
            CHECK(difference(download(program, "turned"), transpose(a, 0, 1), exactly()) == "");
            CHECK(difference(download(program, "part"), slice(a, 1, 1, 2), exactly()) == "");
        }
    }

    TEST_CASE("convert: views at odd offsets and strides") {
        const Tensor a = whole_numbers({4, 5, 7});
        for (const DType type : kSixteen) {
            OpCheck check;
            const Value x = check.input("x", a, type);
            const std::pair<Value, Tensor> views[] = {
                {slice(x, 2, 1, 3), slice(a, 2, 1, 3)},
                {slice(x, 1, 1, 3), slice(a, 1, 1, 3)},
                {slice(slice(x, 0, 1, 3), 2, 6, 1), slice(slice(a, 0, 1, 3), 2, 6, 1)},
                {transpose(x, 0, 2), transpose(a, 0, 2)},
                {permute(slice(x, 1, 3, 2), {1, 2, 0}), permute(slice(a, 1, 3, 2), {1, 2, 0})},
                {broadcast_to(slice(x, 0, 1, 1), {3, 5, 7}), broadcast_to(slice(a, 0, 1, 1), {3, 5, 7})},
                {reshape(x, {20, 7}), reshape(a, {20, 7})}};
            for (const std::pair<Value, Tensor>& view : views) {
                CHECK(check.difference(to(view.first, DType::f32), view.second, exactly()) == "");
                CHECK(check.difference(to(view.first, DType::f16), view.second, exactly()) == "");
                CHECK(check.difference(contiguous(view.first), view.second, exactly()) == "");
            }
            const Value half = to(check.input("z", a), type);  // computed
            CHECK(check.difference(to(transpose(slice(half, 1, 1, 3), 1, 2), DType::f32),
                                   transpose(slice(a, 1, 1, 3), 1, 2), exactly()) == "");
        }
    }

    TEST_CASE("convert: parts one behind the other, of odd lengths along every dimension") {
        const Tensor a = whole_numbers({3, 5, 3}, 1), b = whole_numbers({3, 5, 3}, 2);
        for (const std::size_t dim : {0, 1, 2}) {
            CAPTURE(dim);
            const auto d = static_cast<int>(dim);
            OpCheck check;
            const Value x = check.input("a", a, DType::bf16), y = check.input("b", b, DType::bf16);
            const Value all = concat({x, slice(y, d, 1, 1), y}, d);
            CHECK(all.dtype() == DType::bf16);
            const Tensor want = reference::concat({a, slice(b, d, 1, 1), b}, dim);
            CHECK(check.difference(all, want, exactly()) == "");
        }
    }

    TEST_CASE("convert: repeat_kv of halves") {
        const Tensor a = whole_numbers({1, 3, 3, 5});
        OpCheck check;
        Tensor want({1, 3, 6, 5});
        for_each_index(want.shape, [&](const Sizes& i) { want.at(i) = a.at({i[0], i[1], i[2] / 2, i[3]}); });
        CHECK(check.difference(repeat_kv(check.input("x", a, DType::f16), 2), want, exactly()) == "");
    }

    TEST_CASE("convert: a host's buffers have two numbers a word, and what lies behind them stays") {
        Host host;
        {
            const Device mine = Device::borrow(host.handles());
            Graph g;
            const Value x = g.input("x", {7}, DType::f16);
            g.output("y", to(to(x, DType::f32) + to(x, DType::f32), DType::bf16));
            Program program = mine.compile(g);
            program.allocate();
            CHECK(program.memory().inputs >= 16);
            const Host::Buffer in = host.make_buffer(16), out = host.make_buffer(20);
            const Bits numbers = bits_of(DType::f16, Tensor({7}, {1, 2, 3, -4, 5, 6.5, 100}));
            std::memcpy(in.mapped, numbers.data(), 14);
            std::memset(in.mapped + 14, 0xff, 2);
            std::memset(out.mapped, 0x5a, 20);
            const std::vector<BufferRange> good{{"x", in.buffer, 0, 16}, {"y", out.buffer, 0, 16}};
            VkCommandBuffer commands = host.begin();
            CHECK(std::string(program.record(commands, good, {}).message.data()) == "");
            host.submit(commands);
            host.wait_idle();
            Bits got(10);
            std::memcpy(got.data(), out.mapped, 20);
            Bits want = bits_of(DType::bf16, Tensor({7}, {2, 4, 6, -8, 10, 13, 200}));
            want.insert(want.end(), {0, 0x5a5a, 0x5a5a});
            CHECK(got == want);
            const std::vector<BufferRange> small{{"x", in.buffer, 0, 14}, {"y", out.buffer, 0, 16}};
            commands = host.begin();
            CHECK(contains(program.record(commands, small, {}).message.data(), "x needs 16 bytes"));
            host.submit(commands);
            host.wait_idle();
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("convert: half the memory, and explain() tells the copies") {
        Graph g;
        const Value x = g.input("x", {1001}, DType::f16);
        g.output("y", to(scale(to(x, DType::f32), 2), DType::bf16));
        Program program = device().compile(g);
        CHECK(program.memory().inputs < 2004 + 257);
        CHECK(program.memory().outputs < 2004 + 257);
        CHECK(contains(program.explain(), "convert<"));
        CHECK(contains(program.explain(), "two numbers a word"));
    }

    TEST_CASE("convert: bad arguments are refused by name") {
        Graph g;
        const Value x = g.input("x", {2, 3}, DType::f16), y = g.input("y", {2, 3}),
                    ids = g.input("ids", {2, 3}, DType::i32);
        CHECK(to(x, DType::f16).id() == x.id());
        CHECK(to(ids, DType::i32).id() == ids.id());
        CHECK(contains(error_of([&] { to(ids, DType::f32); }), "to: ids (2, 3) I32 cannot become F32"));
        CHECK(contains(error_of([&] { to(x, DType::i32); }), "to: x (2, 3) F16 cannot become I32"));
        CHECK(contains(error_of([&] { to(y, DType::f64); }), "y (2, 3) F32 cannot become F64"));
        const char* said = "x (2, 3) F16 must be F32: use to(x, DType::f32)";
        CHECK(contains(error_of([&] { add(y, x); }), said));
        CHECK(contains(error_of([&] { gelu(x); }), said));
        CHECK(contains(error_of([&] { softmax(x); }), said));
        CHECK(contains(error_of([&] { rms_norm(x, {}); }), said));
        CHECK(contains(error_of([&] { linear(x, y); }), said));
        CHECK(contains(error_of([&] { argmax(x); }), said));
        CHECK(contains(error_of([&] { embedding(ids, x); }), said));
        CHECK_FALSE(contains(error_of([&] { gelu(ids); }), "use to"));
        CHECK(contains(error_of([&] { concat({y, x}, 0); }), "x (2, 3) F16"));
        CHECK(contains(error_of([&] { g.input("z", {2}, DType::f64); }), "input z cannot be F64"));
        CHECK(contains(error_of([&] { g.state("z", {2}, DType::i64); }), "state z cannot be I64"));
        CHECK(contains(error_of([&] { g.weight("w16", {2}, DType::f16); }), "weight w16 cannot be F16"));
        const Value kept = g.state("kept", {1, 3}, DType::f16);
        CHECK(contains(error_of([&] { copy_into(kept, slice(ids, 0, 0, 1)); }), "the types differ"));
        CHECK(contains(error_of([&] { copy_into(broadcast_to(kept, {2, 3}), y); }), "holds an element more than once"));
        CHECK(contains(error_of([&] { g.state("kept", {1, 3}); }), "state kept is (1, 3) F16, now (1, 3) F32"));

        Graph two;
        two.output("half", to(two.input("y", {2, 3}), DType::f16));
        two.output("wide", to(two.input("x", {2, 3}, DType::f16), DType::f32));
        Program program = device().compile(two);
        const std::vector<float> five(5);
        const std::vector<std::int32_t> whole(6);
        const Bits bits(6);
        CHECK(contains(error_of([&] { program.upload("x", five); }), "is (2, 3) F16, 5 elements of F32 were given"));
        CHECK(contains(error_of([&] { program.upload("x", whole); }), "is (2, 3) F16, 6 elements of I32 were given"));
        CHECK(
            contains(error_of([&] { program.upload("y", bits); }), "is (2, 3) F32, 6 elements of 16 bits were given"));
        program.upload("x", bits);
        program.upload("y", std::vector<float>(6));
        program.run();
        CHECK(contains(error_of([&] { program.download_i32("half"); }), "holds F16, not I32"));
        CHECK(contains(error_of([&] { program.download_bits("wide"); }), "holds F32, not 16 bits"));
        std::vector<float> room(5);
        CHECK(contains(error_of([&] { program.download("half", std::span(room)); }),
                       "has 6 elements, there is room for 5"));
    }
}

}  // namespace vkf::test
