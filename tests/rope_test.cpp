// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "models/blocks/cached_run.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr RopeLayout kPairs = RopeLayout::interleaved;

std::vector<std::int64_t> count_from(std::int64_t start, std::int64_t count) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), start);
    return out;
}

std::string rope_mismatch(const Tensor& x, const Rope& options, std::int64_t start = 0) {
    OpCheck check;
    const Value y = rope(check.input("x", x), options, start);
    return check.difference(y, reference::rope(x, options, count_from(start, x.size(-2))));
}

}  // namespace

TEST_SUITE_BEGIN("rope");

TEST_CASE("rope: both layouts, whole and partial, sizes from the smallest") {
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        CAPTURE(static_cast<int>(layout));
        for (const Sizes& shape :
             {Sizes{1, 2}, Sizes{5, 4}, Sizes{3, 7, 6}, Sizes{2, 3, 9, 16}, Sizes{2, 2, 3, 4, 64}}) {
            CAPTURE(shape.back());
            const Tensor x = random_tensor(shape);
            CHECK(rope_mismatch(x, {.layout = layout, .max_positions = 16}) == "");
            CHECK(rope_mismatch(x, {.theta = 500000, .layout = layout, .rotary_dim = 2, .max_positions = 16}) == "");
        }
        CHECK(rope_mismatch(random_tensor({4, 9}), {.layout = layout, .rotary_dim = 4, .max_positions = 4}) ==
              "");  // an odd tail
        CHECK(rope_mismatch(random_tensor({3, 5, 80}), {.layout = layout, .rotary_dim = 32, .max_positions = 40}, 35) ==
              "");
    }
}

TEST_CASE("rope: positions far out are as exact as near ones") {
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        CHECK(rope_mismatch(random_tensor({3, 8}, 1, 4), {.layout = layout, .max_positions = 8192}, 8189) == "");
        CHECK(rope_mismatch(random_tensor({2, 8, 16}, 1), {.layout = layout, .max_positions = 8192}, 4095) == "");
    }
}

TEST_CASE("rope: frequencies scaled for longer contexts") {
    using Kind = RopeScaling::Kind;
    const Tensor x = random_tensor({2, 40, 64}, 3);
    for (const RopeScaling& scaling :
         {RopeScaling{.kind = Kind::linear, .factor = 4}, RopeScaling{.kind = Kind::ntk, .factor = 8},
          RopeScaling{.kind = Kind::llama3, .factor = 8, .original_max_positions = 8192},
          RopeScaling{.kind = Kind::llama3,
          .factor = 32,
          .low_freq_factor = 2,
          .high_freq_factor = 6,
          .original_max_positions = 64},
          RopeScaling{.kind = Kind::yarn, .factor = 16, .original_max_positions = 4096},
          RopeScaling{.kind = Kind::yarn, .factor = 4, .beta_fast = 16, .beta_slow = 2, .original_max_positions = 256},
          RopeScaling{.kind = Kind::yarn, .factor = 0.5, .original_max_positions = 256},
          // the ramp falls
          RopeScaling{.kind = Kind::yarn, .factor = 4, .beta_fast = 2, .beta_slow = 32, .original_max_positions = 256},
          RopeScaling{.kind = Kind::yarn,
          .factor = 32,
          .truncate = false,
          .attention_factor = 1.25,
          .original_max_positions = 4096}}) {
        CAPTURE(static_cast<int>(scaling.kind));
        CHECK(rope_mismatch(x, {.layout = kPairs, .max_positions = 1000, .scaling = scaling}, 900) == "");
        CHECK(rope_mismatch(x,
                            {.theta = 500000,
                             .layout = RopeLayout::half,
                             .rotary_dim = 48,
                             .max_positions = 1000,
                             .scaling = scaling},
                            123) == "");
    }
}

TEST_CASE("rope: the table is the double's rounded once") {
    const Rope o{.layout = kPairs, .max_positions = 8192};
    const std::vector<float> table = rope_table(o, 8);
    REQUIRE(table.size() == 8192 * 4 * 2);
    for (const std::int64_t position : {0, 1, 777, 8191}) {
        for (std::int64_t i = 0; i < 4; ++i) {
            const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / 8.0);
            const auto at = static_cast<std::size_t>((position * 4 + i) * 2);
            CHECK(table[at] == static_cast<float>(std::cos(angle)));
            CHECK(table[at + 1] == static_cast<float>(std::sin(angle)));
        }
    }
}

TEST_CASE("rope: scores depend on relative positions only") {
    const Tensor q = random_tensor({1, 64}, 1);
    const Tensor k = random_tensor({1, 64}, 2);
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        const auto score = [&](std::int64_t query_at, std::int64_t key_at) {
            OpCheck check;
            const Rope o{.layout = layout, .max_positions = 8192};
            return check
                .run(matmul(rope(check.input("q", q), o, query_at), rope(check.input("k", k), o, key_at),
                            {.transpose_b = true}))
                .data[0];
        };
        const double near = score(5, 2);
        for (const std::int64_t shift : {1, 100, 8000}) {
            CAPTURE(shift);
            CHECK(std::abs(score(5 + shift, 2 + shift) - near) < 2e-5);
        }
        CHECK(std::abs(score(6, 2) - near) > 1e-3);
    }
}

TEST_CASE("rope: a start that is a symbol, at several lengths of one program") {
    Graph g;
    const Dim start = g.symbol("start", 30);
    const Dim tokens = g.symbol("tokens", 12);
    const Rope o{.layout = kPairs, .rotary_dim = 6, .max_positions = 32};
    g.output("y", rope(g.input("x", {2, tokens, 8}), o, start));
    Program program = device().compile(g);
    const std::size_t pipelines = pipelines_of(device());
    for (const auto& window : {std::pair{0, 12}, {20, 12}, {30, 2}, {7, 1}, {3, 0}, {30, 0}}) {
        const int at = window.first, count = window.second;
        CAPTURE(at);
        const Tensor x = random_tensor({2, count, 8}, 3);
        program.set("start", at);
        program.set("tokens", count);
        upload(program, "x", x);
        program.run();
        CHECK(difference(download(program, "y"), reference::rope(x, o, count_from(at, count))) == "");
    }
    CHECK(pipelines_of(device()) == pipelines);
    program.set("start", 30);
    program.set("tokens", 3);
    upload(program, "x", Tensor({2, 3, 8}));
    CHECK(contains(error_of([&] { program.run(); }), "33 is more than 32"));
}

TEST_CASE("rope: a position for each row, and NaN where there is none in the table") {
    const Tensor x = random_tensor({2, 3, 6, 8}, 4);
    const Rope o{.layout = RopeLayout::half, .rotary_dim = 4, .max_positions = 20};
    const auto run = [&](const std::vector<double>& positions) {
        OpCheck check;
        return check.run(rope_at(check.input("x", x), check.indices("positions", Tensor({6}, positions)), o));
    };
    CHECK(difference(run({19, 0, 7, 7, 1, 3}), reference::rope(x, o, {19, 0, 7, 7, 1, 3})) == "");
    Tensor want = reference::rope(x, o, {0, 0, 5, 0, 0, 0});
    for_each_index(x.shape, [&](const Sizes& i) {
        if (i[2] != 2 && i[3] < 4) {
            want.at(i) = std::numeric_limits<double>::quiet_NaN();
        }
    });
    CHECK(difference(run({20, -1, 5, 1e9, -2147483648.0, 2147483647.0}), want) == "");
}

TEST_CASE("rope: a decoder's run turns queries and keys as the table says") {
    const Tensor x = random_tensor({1, 2, 5, 12}, 1);
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        CAPTURE(static_cast<int>(layout));
        const Rope o{.theta = 100, .layout = layout, .rotary_dim = 8, .max_positions = 9};
        Graph g;
        CachedRun run(g, DecoderTask::prompt, {.max_tokens = 9, .chunk = 5}, {});
        const Value heads = g.input("x", {run.tokens().size(0), 2, run.tokens().size(1), 12});
        const QueryKeyValue turned = run.rotated({heads, heads, heads}, run.rope_table(o, 12));
        g.output("query", contiguous(turned.query));
        g.output("key", contiguous(turned.key));
        Program p = device().compile(g);
        p.set("start", 3);
        p.upload("tokens", std::vector<std::int32_t>(5));
        upload(p, "x", x);
        p.run();
        CHECK(difference(download(p, "query"), reference::rope(x, o, count_from(3, 5))) == "");
        CHECK(difference(download(p, "key"), reference::rope(x, o, count_from(3, 5))) == "");
    }
}

TEST_CASE("rope: calls with the same angles in a graph share a table, and others do not") {
    const Tensor x = random_tensor({7, 8}, 6);
    const RopeScaling yarn{.kind = RopeScaling::Kind::yarn, .factor = 4, .original_max_positions = 6};
    RopeScaling larger = yarn;
    larger.attention_factor = 2;
    const Rope all[] = {
        {.layout = RopeLayout::half, .max_positions = 9},
        {.theta = 500, .layout = RopeLayout::half, .max_positions = 9},
        {.layout = RopeLayout::half, .rotary_dim = 4, .max_positions = 9},
        {.layout = RopeLayout::half, .max_positions = 10},
        {.layout = RopeLayout::half, .max_positions = 9, .scaling = {.kind = RopeScaling::Kind::linear, .factor = 2}},
        {.layout = RopeLayout::half, .max_positions = 9, .scaling = yarn},
        {.layout = RopeLayout::half, .max_positions = 9, .scaling = larger}};
    OpCheck check;
    const Value input = check.input("x", x), positions = check.indices("positions", Tensor({7}, 2.0));
    for (int round = 0; round < 2; ++round) {  // the second finds the tables of the first
        for (const Rope& o : all) {
            for (const RopeLayout layout : {RopeLayout::half, RopeLayout::interleaved}) {
                Rope turned = o;
                turned.layout = layout;
                CHECK(check.difference(rope(input, turned, 2), reference::rope(x, turned, count_from(2, 7))) == "");
                CHECK(check.difference(rope_at(input, positions, turned),
                                       reference::rope(x, turned, std::vector<std::int64_t>(7, 2))) == "");
            }
        }
    }
    const auto& storages = check.graph.storages();
    CHECK(std::count_if(storages.begin(), storages.end(), [](const StorageInfo& s) {
              return s.kind == StorageKind::constant;
          }) == static_cast<std::ptrdiff_t>(std::size(all)));
}

TEST_CASE("rope: by a table of the caller's") {
    const Tensor x = random_tensor({2, 5, 12}, 1);
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        CAPTURE(static_cast<int>(layout));
        for (const std::int64_t r : {8, 12}) {
            const Rope o{.theta = 100, .layout = layout, .rotary_dim = r, .max_positions = 9};
            const std::vector<float> made = rope_table(o, 12);
            const Tensor table({9, r / 2, 2}, std::vector<double>(made.begin(), made.end()));
            OpCheck check;
            const Value y = rope_by_table(check.input("x", x), check.input("table", table), layout, 3);
            CHECK(check.difference(y, reference::rope(x, o, count_from(3, 5))) == "");
        }
    }
    Graph g;
    const Value v = g.input("x", {5, 8});
    CHECK_FALSE(error_of([&] { rope_by_table(v, g.input("flat", {9, 8}), RopeLayout::half); }).empty());
    CHECK_FALSE(error_of([&] { rope_by_table(v, g.input("wide", {9, 5, 2}), RopeLayout::half); }).empty());
    CHECK_FALSE(error_of([&] { rope_by_table(v, g.input("short", {4, 4, 2}), RopeLayout::half); }).empty());
    CHECK_FALSE(error_of([&] { rope_by_table(v, g.input("ids", {9, 4, 2}, DType::i32), RopeLayout::half); }).empty());
}

TEST_CASE("rope: heads split from a projection, whose layout the result keeps usable") {
    const Tensor x = random_tensor({2, 5, 24}, 1);
    const Rope o{.layout = kPairs, .max_positions = 8};
    OpCheck check;
    const Value heads = rope(split_heads(check.input("x", x), 3), o, 2);
    const Tensor want = reference::rope(permute(reshape(x, {2, 5, 3, 8}), {0, 2, 1, 3}), o, count_from(2, 5));
    CHECK(check.difference(heads, want) == "");
    OpCheck sliced;
    const Tensor wide = random_tensor({5, 20}, 2);
    CHECK(sliced.difference(rope(slice(sliced.input("x", wide), 1, 3, 8), o),
                            reference::rope(slice(wide, 1, 3, 8), o, count_from(0, 5))) == "");
}

TEST_CASE("rope: rows of one position that lie anywhere, more and fewer than an invocation takes") {
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        CAPTURE(static_cast<int>(layout));
        for (const std::int64_t rotary : {24, 16}) {  // no element passes, or eight do
            for (const Sizes& shape : {Sizes{3, 2, 3, 5, 24}, Sizes{2, 5, 2, 3, 24}, Sizes{1, 3, 1, 2, 24}}) {
                CAPTURE(shape[0]);
                const Tensor x = random_tensor(shape, 7);
                const Rope options{.layout = layout, .rotary_dim = rotary, .max_positions = 16};
                const Tensor wanted = reference::rope(x, options, count_from(4, shape[3]));
                // as (d1, L, d0, d2, width) in memory, so that no stride follows from another
                Tensor stored({shape[1], shape[3], shape[0], shape[2], shape[4]});
                for (std::int64_t i = 0; i < x.count(); ++i) {
                    const std::int64_t w = i % shape[4], l = i / shape[4] % shape[3],
                                       c = i / shape[4] / shape[3] % shape[2],
                                       b = i / shape[4] / shape[3] / shape[2] % shape[1],
                                       a = i / shape[4] / shape[3] / shape[2] / shape[1];
                    stored.at({b, l, a, c, w}) = x.at({a, b, c, l, w});
                }
                OpCheck check;
                const Value view = permute(check.input("x", stored), {2, 0, 3, 1, 4});
                const Value y = rope(view, options, 4);
                CHECK(difference(check.run(contiguous(y)), wanted) == "");
            }
        }
    }
}

TEST_CASE("rope: more than 65,535 groups") {
    // a group takes 64 pairs or single elements
    const std::int64_t rows = 65535 * 64 / 2 + 5;
    OpCheck check;
    const Value y = rope(check.input("x", Tensor({rows, 1, 2}, 1.0)), {.layout = kPairs, .max_positions = 2}, 1);
    Tensor want({rows, 1, 2});
    for (std::size_t i = 0; i < want.data.size(); i += 2) {
        want.data[i] = std::cos(1.0) - std::sin(1.0);
        want.data[i + 1] = std::cos(1.0) + std::sin(1.0);
    }
    CHECK(difference(check.run(y), want) == "");
}

TEST_CASE("rope: values of +-1e5, NaN and infinities touch their pair only, the same bits every time") {
    Tensor x = random_tensor({4, 8}, 1, 1e5);
    CHECK(rope_mismatch(x, {.layout = kPairs, .max_positions = 4}) == "");
    x.at({2, 3}) = std::numeric_limits<double>::quiet_NaN();
    x.at({1, 7}) = std::numeric_limits<double>::infinity();
    CHECK(rope_mismatch(x, {.layout = kPairs, .max_positions = 9}, 3) == "");
    OpCheck check;
    const Value y = rope(check.input("x", random_tensor({33, 16})), {.layout = kPairs, .max_positions = 64}, 11);
    const Tensor first = check.run(y);
    for (int repeat = 0; repeat < 20; ++repeat) {
        CHECK(same_bits(first, check.run(y)));
    }
}

TEST_CASE("rope: loads of 64 bits give the same bits as loads of 32") {
    if (!device().capabilities().int64) {
        cannot_run("loads of 64 bits");
        return;
    }
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        const auto turned = [&](const char* kernel) {
            OpCheck check;
            const Value x = check.input("x", random_tensor({3, 9, 80}));
            const Tensor y = check.run(rope(x, {.layout = layout, .rotary_dim = 32, .max_positions = 9}, 0));
            CHECK(contains(device().compile(check.graph).explain(), kernel));
            return y;
        };
        const Tensor wide = turned("rope_wide<");
        const Believed narrow([](Capabilities& c) { c.int64 = false; });
        CHECK(same_bits(turned("rope<"), wide));
    }
}

TEST_CASE("rope: bad arguments are refused by name") {
    Graph g;
    const Value x = g.input("x", {2, 5, 8});
    const auto refusal = [&](const Rope& o, Dim start = 0) { return error_of([&] { rope(x, o, start); }); };
    CHECK(contains(refusal({.theta = NAN, .layout = kPairs, .max_positions = 8}), "rope: theta"));
    CHECK(contains(refusal({.theta = 0, .layout = kPairs, .max_positions = 8}), "rope: theta"));
    CHECK(contains(refusal({.theta = INFINITY, .layout = kPairs, .max_positions = 8}), "rope: theta"));
    CHECK(contains(refusal({.layout = kPairs}), "max_positions"));
    CHECK(contains(refusal({.layout = kPairs, .rotary_dim = 3, .max_positions = 8}), "rotary_dim = 3"));
    CHECK(contains(refusal({.layout = kPairs, .rotary_dim = 10, .max_positions = 8}), "rotary_dim = 10"));
    CHECK(contains(refusal({.layout = kPairs, .rotary_dim = -2, .max_positions = 8}), "rotary_dim = -2"));
    CHECK(refusal({.layout = kPairs, .max_positions = 4}) != "");
    CHECK(refusal({.layout = kPairs, .max_positions = 8}, 4) != "");
    CHECK(contains(
        refusal({.layout = kPairs, .max_positions = 8, .scaling = {.kind = RopeScaling::Kind::linear, .factor = NAN}}),
        "factor"));
    CHECK(contains(refusal({.layout = kPairs, .max_positions = 8, .scaling = {.kind = RopeScaling::Kind::yarn}}),
                   "original_max_positions"));
    CHECK(contains(
        refusal({.layout = kPairs,
                 .max_positions = 8,
                 .scaling = {.kind = RopeScaling::Kind::yarn, .attention_factor = -1, .original_max_positions = 4}}),
        "attention_factor"));
    CHECK(rope_scaling_kind("default") == RopeScaling::Kind::none);
    CHECK(rope_scaling_kind("yarn") == RopeScaling::Kind::yarn);
    CHECK(contains(error_of([&] { rope_scaling_kind("dynamic"); }), "scaling \"dynamic\" is not supported"));
    CHECK(contains(error_of([&] { rope_scaling_kind("longrope"); }), "scaling \"longrope\" is not known"));
    CHECK(contains(error_of([&] {
                       rope(g.input("odd", {5, 7}), {.layout = kPairs, .max_positions = 8});
                   }),
                   "rotary_dim = 7"));
    const Rope wide{.layout = kPairs, .rotary_dim = 8, .max_positions = 8};
    rope(x, wide);  // whose table others may share
    CHECK(contains(error_of([&] { rope(g.input("narrow", {5, 4}), wide); }), "rotary_dim = 8 is not even and in 2..4"));
    CHECK(contains(error_of([&] {
                       rope(g.input("ids", {5, 8}, DType::i32), {.layout = kPairs, .max_positions = 8});
                   }),
                   "ids (5, 8) I32 must be F32"));
    CHECK(contains(error_of([&] { rope(g.input("row", {8}), {.layout = kPairs, .max_positions = 8}); }), "row (8)"));
    const std::string wrong =
        error_of([&] { rope_at(x, g.input("at", {4}, DType::i32), {.layout = kPairs, .max_positions = 8}); });
    CHECK(contains(wrong, "at (4)"));
    CHECK(contains(wrong, "5 rows"));
    CHECK(contains(error_of([&] { rope_at(x, g.input("floats", {5}), {.layout = kPairs, .max_positions = 8}); }),
                   "floats (5) F32 must be I32"));
}

TEST_SUITE_END();
