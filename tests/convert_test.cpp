// SPDX-License-Identifier: Apache-2.0
// to(), and inputs, outputs and states of f16 and bf16: number by number, and wherever they lie.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "models/files/safetensors.h"
#include "models/files/state_file.h"
#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/graph/sixteen.h"
#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

using Bits = std::vector<std::uint16_t>;

constexpr DType kSixteen[] = {DType::f16, DType::bf16};
constexpr std::uint32_t kNanPatterns[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u,
                                          0x7fa5a5a5u, 0x7f802000u, 0xffffffffu};

/// A format's digits behind the point and its smallest exponent.
struct Format {
    int digits, least;
    std::uint16_t infinity;
};

Format format_of(DType type) { return type == DType::f16 ? Format{10, -14, 0x7c00} : Format{7, -126, 0x7f80}; }

bool is_nan(DType type, std::uint16_t bits) { return (bits & 0x7fffu) > format_of(type).infinity; }

/// What the format's definition says; a NaN's bits are its own affair.
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

/// Whole numbers that both types hold.
Tensor whole_numbers(const Sizes& shape, std::uint32_t seed = 1) { return random_integers(shape, 256, seed); }

Bits bits_of(DType type, const Tensor& x) {
    Bits out;
    for (const float number : x.floats()) {
        out.push_back(narrowed(type, number));
    }
    return out;
}

Bits sixteen_bits(const std::vector<std::byte>& bytes) {
    Bits out(bytes.size() / 2);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

std::vector<std::byte> bytes_of(const Bits& bits) {
    const auto bytes = std::as_bytes(std::span(bits));
    return {bytes.begin(), bytes.end()};
}

Shape shape_of(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }

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

    TEST_CASE("convert: a window of a state is written whatever it is, and nothing beside it") {
        std::mt19937 random(7);
        const auto up_to = [&](std::int64_t n) {
            return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n));
        };
        for (int turn = 0; turn < 60; ++turn) {
            CAPTURE(turn);
            const DType type = kSixteen[turn % 2];
            Sizes shape(static_cast<std::size_t>(1 + up_to(4)));
            for (std::int64_t& size : shape) {
                size = 1 + up_to(6);
            }
            Graph g;
            const Value state = g.state("kept", shape_of(shape), type);
            Value window = state;
            Sizes start(shape.size()), part = shape;
            for (std::size_t d = 0; d < shape.size(); ++d) {
                start[d] = up_to(shape[d]);
                part[d] = 1 + up_to(shape[d] - start[d]);
                window = slice(window, static_cast<int>(d), start[d], part[d]);
            }
            std::vector<std::size_t> order(shape.size());
            std::iota(order.begin(), order.end(), std::size_t{0});
            std::shuffle(order.begin(), order.end(), random);
            window = permute(window, order);
            Sizes given(order.size());
            for (std::size_t i = 0; i < order.size(); ++i) {
                given[i] = part[order[i]];
            }
            const DType from[] = {DType::f32, DType::f16, DType::bf16};
            // the source's elements lie in another order too
            const Sizes stored(given.rbegin(), given.rend());
            std::vector<std::size_t> back(order.size());
            std::iota(back.rbegin(), back.rend(), std::size_t{0});
            const Value x = permute(g.input("x", shape_of(stored), from[turn % 3]), back);
            g.output("y", contiguous(copy_into(window, x)));

            const Tensor before = whole_numbers(shape, 1), data = whole_numbers(stored, 2);
            const Tensor news = permute(data, back);
            State kept = device().make_state({&g});
            kept.write("kept", bytes_of(bits_of(type, before)));
            Tensor want = before;
            for_each_index(given, [&](const Sizes& i) {
                Sizes at(shape.size());
                for (std::size_t d = 0; d < at.size(); ++d) {
                    at[order[d]] = start[order[d]] + i[d];
                }
                want.at(at) = news.at(i);
            });
            const bool small = turn % 4 == 3;
            const auto run = [&] {
                Program program = device().compile(g, {}, {.state = kept});
                upload(program, "x", data);
                program.run();
                CHECK(difference(download(program, "y"), news, exactly()) == "");
            };
            if (small) {
                const AsSmallGpu gpu;
                run();
            } else {
                run();
            }
            CHECK(sixteen_bits(kept.read("kept")) == bits_of(type, want));
        }
    }

    TEST_CASE("convert: a cache of halves grows by odd numbers of tokens") {
        Graph g;
        const Dim start = g.symbol("start", 9), tokens = g.symbol("tokens", 9);
        const Value cache = g.state("cache", {2, 9, 3}, DType::f16);
        const Value x = transpose(g.input("x", {tokens, 2, 3}), 0, 1);
        const Value written = copy_into(slice(cache, 1, start, tokens), x);
        g.output("window", to(written, DType::f32));
        g.output("all", to(cache, DType::f32));
        Program program = device().compile(g);
        Tensor want({2, 9, 3}, 0.0);
        std::uint32_t seed = 0;
        for (const auto& window : {std::pair{0, 3}, {3, 1}, {4, 5}, {2, 0}, {1, 2}, {0, 9}, {8, 1}}) {
            const int at = window.first, count = window.second;
            CAPTURE(at);
            const Tensor news = whole_numbers({count, 2, 3}, ++seed);
            for_each_index({2, count, 3}, [&](const Sizes& i) {
                want.at({i[0], at + i[1], i[2]}) = news.at({i[1], i[0], i[2]});
            });
            program.set("start", at);
            program.set("tokens", count);
            upload(program, "x", news);
            program.run();
            CHECK(difference(download(program, "window"), transpose(news, 0, 1), exactly()) == "");
            CHECK(difference(download(program, "all"), want, exactly()) == "");
        }
    }

    TEST_CASE("convert: many numbers, over more groups than a dimension has") {
        constexpr std::int64_t kCount = 20'000'001;
        Graph g;
        const Value state = g.state("kept", {kCount + 1}, DType::bf16);
        copy_into(slice(state, 0, 1, kCount), g.input("x", {kCount}, DType::f16));
        g.output("y", to(state, DType::f16));
        Program program = device().compile(g);
        Bits x(kCount);
        for (std::size_t i = 0; i < x.size(); ++i) {
            x[i] = narrowed(DType::f16, static_cast<float>(i % 251));
        }
        program.upload("x", x);
        program.run();
        const Bits y = program.download_bits("y");
        REQUIRE(y.size() == kCount + 1);
        CHECK(y[0] == 0);
        CHECK(std::equal(x.begin(), x.end(), y.begin() + 1));
    }

    TEST_CASE("convert: a state that is read and written in one run, and copied onto itself") {
        for (const DType type : kSixteen) {
            Graph g;
            const Value sum = g.state("sum", {7}, type);
            copy_into(sum, to(sum, DType::f32) + g.input("x", {7}));
            const Value ring = g.state("ring", {7}, type);
            copy_into(slice(ring, 0, 1, 6), slice(ring, 0, 0, 6));
            copy_into(slice(ring, 0, 0, 1), slice(sum, 0, 3, 1));
            g.output("y", to(sum, DType::f32));
            State kept = device().make_state({&g});
            CHECK(kept.find("sum")->bytes == 14);
            for (int run = 1; run <= 5; ++run) {
                Program program = device().compile(g, {}, {.state = kept});
                upload(program, "x", Tensor({7}, {0, 1, 2, 3, 4, 5, 6}));
                program.run();
                CHECK(download(program, "y").data ==
                      std::vector<double>{0, 1.0 * run, 2.0 * run, 3.0 * run, 4.0 * run, 5.0 * run, 6.0 * run});
            }
            CHECK(sixteen_bits(kept.read("ring")) == bits_of(type, Tensor({7}, {15, 12, 9, 6, 3, 0, 0})));
        }
    }

    TEST_CASE("convert: states of every type are saved and restored bit for bit") {
        Graph g;
        const std::map<std::string, DType> types{
            {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"i32", DType::i32}};
        for (const auto& type : types) {
            g.output(type.first + " too", contiguous(g.state(type.first, {3, 5, 3}, type.second)));
        }
        State kept = device().make_state({&g});
        for (const auto& type : types) {
            Bits bits(45 * size_of(type.second) / 2);
            for (std::size_t i = 0; i < bits.size(); ++i) {
                // NaNs, infinities and subnormal numbers among them
                bits[i] = static_cast<std::uint16_t>(0x7bf0u + 0x1111u * i);
            }
            kept.write(type.first, bytes_of(bits));
        }
        const TemporaryFolder folder;
        const auto whole = folder.path() / "whole", used = folder.path() / "used";
        save_state(whole, kept);
        save_state(used, kept, {{"f16", {1, 3}}, {"bf16", {2, 1}}});
        const Safetensors file(whole), less(used);
        for (const auto& type : types) {
            CHECK(file.at(type.first).dtype == type.second);
        }
        CHECK(less.at("f16").data.size() == 3 * 3 * 3 * 2);
        CHECK(less.at("bf16").data.size() == 3 * 5 * 2);
        State other = device().make_state({&g}), third = device().make_state({&g});
        restore_state(whole, other);
        restore_state(used, third);
        for (const auto& type : types) {
            CAPTURE(type.first);
            CHECK(other.read(type.first) == kept.read(type.first));
        }
        CHECK(third.read("f16", {1, 3}) == kept.read("f16", {1, 3}));
        CHECK(third.read("bf16", {2, 1}) == kept.read("bf16", {2, 1}));
        const Bits all = sixteen_bits(third.read("f16"));
        CHECK(std::all_of(all.begin() + 9, all.begin() + 15, [](std::uint16_t b) { return b == 0; }));
        Program program = device().compile(g, {}, {.state = other});
        program.run();
        for (const auto& type : types) {
            if (size_of(type.second) == 2) {
                CHECK(program.download_bits(type.first + " too") == sixteen_bits(kept.read(type.first)));
            }
        }
        Graph wide, same;
        wide.output("y", contiguous(wide.state("f16", {3, 5, 3})));
        same.output("y", contiguous(same.state("f16", {3, 5, 3}, DType::f16)));
        State f32 = device().make_state({&wide});
        CHECK(contains(error_of([&] { device().compile(same, {}, {.state = f32}); }),
                       "state f16: is (3, 5, 3) F32, the graph wants (3, 5, 3) F16"));
        Graph only;
        only.output("y", contiguous(only.state("f16", {3, 5, 3}, DType::bf16)));
        State bf16 = device().make_state({&only});
        const auto one = folder.path() / "one";
        save_state(one, device().make_state({&same}));
        CHECK(contains(error_of([&] { restore_state(one, bf16); }),
                       "state f16 is (3, 5, 3) BF16, the file has (3, 5, 3) F16"));
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
