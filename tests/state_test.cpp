// SPDX-License-Identifier: Apache-2.0
// Tensors that outlive a run: a cache that is filled step by step, and shared by programs.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

constexpr std::int64_t kCapacity = 8;
constexpr std::int64_t kStateWidth = 3;

/// Writes "x" (tokens, kStateWidth) behind the `cached` rows of the cache and gives all rows so
/// far, doubled, as "y".
void describe_append(Graph& g) {
    const Dim tokens = g.symbol("tokens", kCapacity);
    const Dim cached = g.symbol("cached", kCapacity);
    const Value cache = g.state("cache", {kCapacity, kStateWidth});
    copy_into(slice(cache, 0, cached, tokens), g.input("x", {tokens, kStateWidth}));
    g.output("y", scale(slice(cache, 0, 0, cached + tokens), 2.0f));
}

std::vector<float> rows(std::int64_t first, std::int64_t count, float factor = 1) {
    std::vector<float> out(static_cast<std::size_t>(count * kStateWidth));
    std::iota(out.begin(), out.end(), static_cast<float>(first * kStateWidth));
    for (float& x : out) {
        x *= factor;
    }
    return out;
}

std::vector<float> append(Program& program, std::int64_t cached, std::int64_t tokens) {
    program.set("cached", cached);
    program.set("tokens", tokens);
    program.upload("x", rows(cached, tokens));
    program.run();
    return program.download("y");
}

}  // namespace

TEST_SUITE("state") {
    TEST_CASE("state: it outlives a run, and the slice moves with the sizes") {
        Graph g;
        describe_append(g);
        Program program = device().compile(g);
        CHECK(append(program, 0, 3) == rows(0, 3, 2));
        CHECK(append(program, 3, 1) == rows(0, 4, 2));
        CHECK(append(program, 4, 4) == rows(0, 8, 2));
        CHECK(append(program, 7, 1) == rows(0, 8, 2));
    }

    TEST_CASE("state: what is left of a tensor behind a moving start") {
        Graph g;
        const Dim start = g.symbol("start", kCapacity);
        const Value rest = slice(g.input("x", {kCapacity, kStateWidth}), 0, start, kCapacity - start);
        const Value before = scale(g.input("w", {kCapacity, kStateWidth}), 1.0f);
        g.output("y", contiguous(scale(rest, 2.0f)));  // the largest where start is smallest
        g.output("z", scale(before, 3.0f));
        Program program = device().compile(g);
        program.upload("x", rows(0, kCapacity));
        program.upload("w", rows(0, kCapacity));
        for (const std::int64_t first : {8, 5, 0}) {
            CAPTURE(first);
            program.set("start", first);
            program.run();
            CHECK(program.download("y") == rows(first, kCapacity - first, 2));
            CHECK(program.download("z") == rows(0, kCapacity, 3));
        }
    }

    TEST_CASE("state: a slice beyond the capacity is an error at the run, and the next run is none the worse") {
        Graph g;
        describe_append(g);
        Program program = device().compile(g, {}, {.name = "step"});
        CHECK(append(program, 0, 5) == rows(0, 5, 2));
        const std::string said = error_of([&] { append(program, 5, 4); });
        CAPTURE(said);
        CHECK(contains(said, "step"));
        CHECK(contains(said, "9 is more than 8"));
        CHECK(append(program, 5, 3) == rows(0, 8, 2));
    }

    TEST_CASE("state: two programs share one, and clear() empties it") {
        Graph prompt;
        describe_append(prompt);
        Graph step;
        const Dim cached = step.symbol("cached", kCapacity - 1);
        const Value cache = step.state("cache", {kCapacity, kStateWidth});
        copy_into(slice(cache, 0, cached, 1), step.input("x", {1, kStateWidth}));
        step.output("all", contiguous(cache));
        State state = device().make_state({&prompt, &step});
        CHECK(state.find("cache") != nullptr);
        CHECK(state.find("other") == nullptr);
        CHECK(state.bytes() >= kCapacity * kStateWidth * sizeof(float));
        Program first = device().compile(prompt, {}, {.state = state});
        Program second = device().compile(step, {}, {.state = state});
        CHECK(append(first, 0, 2) == rows(0, 2, 2));
        second.set("cached", 2);
        second.upload("x", rows(2, 1));
        second.run();
        std::vector<float> want = rows(0, 3);
        want.resize(kCapacity * kStateWidth, 0.0f);
        CHECK(second.download("all") == want);
        CHECK(append(first, 3, 2) == rows(0, 5, 2));

        Program own = device().compile(step);  // with a state of its own
        own.set("cached", 0);
        own.upload("x", rows(9, 1));
        own.run();
        want = rows(9, 1);
        want.resize(kCapacity * kStateWidth, 0.0f);
        CHECK(own.download("all") == want);

        state.clear();
        second.set("cached", 0);
        second.run();
        want = rows(2, 1);
        want.resize(kCapacity * kStateWidth, 0.0f);
        CHECK(second.download("all") == want);
    }

    TEST_CASE("state: one that does not fit is named") {
        Graph g;
        describe_append(g);
        Graph wider;
        wider.output("y", contiguous(wider.state("cache", {kCapacity, kStateWidth + 1})));
        Graph none;
        none.output("y", contiguous(none.state("other", {2})));
        CHECK(contains(error_of([&] {
                           device().make_state({&g, &wider});
                       }),
                       "state cache: two graphs name it with different"));
        CHECK(error_of([&] { device().compile(g, {}, {.state = device().make_state({&wider})}); }) ==
              "state cache: is (8, 4) F32, the graph wants (8, 3) F32");
        CHECK(error_of([&] { device().compile(g, {}, {.state = device().make_state({&none})}); }) ==
              "state cache: is missing; the graph wants it as (8, 3)");
        Device other = Device::create();
        CHECK(contains(error_of([&] { device().compile(g, {}, {.state = other.make_state({&g})}); }),
                       "of another device"));
        CHECK(last_words(std::move(other)) == "");
    }
}

TEST_CASE("state: a cache moved within itself arrives whole") {
    Graph g;
    const Value cache = g.state("cache", {1, 300});
    copy_into(cache, g.input("x", {1, 300}));
    copy_into(slice(cache, 1, 0, 299), slice(cache, 1, 1, 299));
    g.output("y", contiguous(cache));
    Program p = device().compile(g);
    const Tensor x = random_tensor({1, 300});
    upload(p, "x", x);
    p.run();
    const Tensor y = download(p, "y");
    for (std::int64_t i = 0; i < 300; ++i) {
        CHECK(y.at({0, i}) == x.at({0, std::min<std::int64_t>(i + 1, 299)}));
    }
}

}  // namespace vkf::test
