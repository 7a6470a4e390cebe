// SPDX-License-Identifier: Apache-2.0
// States of f16 and bf16, and of every type in files: what is written, and what stays beside it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "models/files/safetensors.h"
#include "models/state_file.h"
#include "ops/ops.h"
#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "tests/sixteen.h"

namespace vkf::test {

namespace {

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
}

}  // namespace vkf::test
