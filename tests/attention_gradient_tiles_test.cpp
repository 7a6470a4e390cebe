// SPDX-License-Identifier: Apache-2.0
// The gradient of attention by the kernels for GPUs, beside the composed one.
#include <doctest/doctest.h>

#include <cmath>
#include <optional>

#include "ops/gradients.h"
#include "tests/attention_gradient_check.h"
#include "tests/believed.h"

namespace vkf::test {

namespace {

constexpr const char* kOfQueriesInTiles = "of queries, tiles in shared memory";
constexpr const char* kOfKeysInTiles = "of keys and values, tiles in shared memory";

void as_shared(Capabilities& c) { c.variants = "attention_shared"; }

bool in_tiles(const std::string& explained) {
    return contains(explained, kOfQueriesInTiles) && contains(explained, kOfKeysInTiles);
}

/// Says how the gradients differ from the composed ones; empty: they do not.
std::string mismatch_in_tiles(const TiledProblem& p) {
    const Gradients want = gradients_as(p, as_composed), got = gradients_as(p, as_shared);
    if (contains(want.explained, "attention_delta")) {
        return "composed, it should be:\n" + want.explained;
    }
    if (device().capabilities().storage_buffers < 12) {
        cannot_run("the gradient of fused attention");
    } else if (!in_tiles(got.explained)) {
        return "not in tiles:\n" + got.explained;
    }
    return difference(got, want);
}

}  // namespace

TEST_SUITE_BEGIN("attention gradient");

TEST_CASE("attention gradient in tiles: widths of heads and of values, grouped heads, few rows and many") {
    CHECK(mismatch_in_tiles(tiled_problem({1, 1, 1, 1}, {1, 1, 1, 1}, 1)) == "");
    CHECK(mismatch_in_tiles(tiled_problem({2, 3, 5, 7}, {2, 3, 40, 7}, 5)) == "");
    CHECK(mismatch_in_tiles(tiled_problem({1, 4, 65, 40}, {1, 2, 33, 40}, 72)) == "");
    CHECK(mismatch_in_tiles(tiled_problem({1, 6, 11, 100}, {1, 2, 70, 100}, 33)) == "");
    CHECK(mismatch_in_tiles(tiled_problem({1, 2, 70, 132}, {1, 1, 70, 132}, 20)) == "");
    CHECK(mismatch_in_tiles(tiled_problem({1, 2, 33, 256}, {1, 2, 70, 256}, 256)) == "");
}

TEST_CASE("attention gradient in tiles: every option by itself, and all together") {
    const Sizes query{2, 4, 43, 24}, key{2, 2, 75, 24};
    CHECK(mismatch_in_tiles(tiled_problem(query, key, 40)) == "");
    TiledProblem all = every_option(query, key, 40);
    all.log_sum_exp = true;
    CHECK(mismatch_in_tiles(all) == "");
    const auto only = [&](auto&& set) {
        TiledProblem p = tiled_problem(query, key, 40);
        set(p);
        return mismatch_in_tiles(p);
    };
    CHECK(only([&](TiledProblem& p) { p.causal = Causal::top_left, p.window = 9; }) == "");
    CHECK(only([&](TiledProblem& p) { p.causal = Causal::bottom_right; }) == "");
    CHECK(only([&](TiledProblem& p) { p.causal = Causal::bottom_right, p.window = 9, p.fill = -1.0f; }) == "");
    CHECK(only([&](TiledProblem& p) { p.mask = all.mask; }) == "");
    CHECK(only([&](TiledProblem& p) { p.mask = random_integers({4, 1, 75}, 2, 5); }) == "");
    CHECK(only([&](TiledProblem& p) { p.mask = all.mask, p.fill = -2.0f; }) == "");
    CHECK(only([&](TiledProblem& p) { p.bias = random_tensor({2, 1, 43, 1}, 6), p.slopes = all.slopes; }) == "");
    CHECK(only([&](TiledProblem& p) { p.dropout = 0.6f, p.softcap = 0.7f, p.sinks = all.sinks; }) == "");
}

TEST_CASE("attention gradient in tiles: what is masked leaves no trace, whatever it holds") {
    TiledProblem clean = tiled_problem({1, 4, 70, 24}, {1, 2, 110, 24}, 40);
    clean.mask = holed_mask(70, 110);
    const Gradients want = gradients_as(clean, as_shared);
    for (const double poison : {kNan, kInf, -kInf}) {
        CAPTURE(poison);
        const Gradients got = gradients_as(poisoned(clean, poison), as_shared);
        for (std::size_t i = 0; i < want.of.size(); ++i) {
            CHECK(same_bits(got.of[i], want.of[i]));
        }
    }
    for_each_index(want.of[0].shape, [&](const Sizes& i) {
        CHECK(std::isfinite(want.of[0].at(i)));
        CHECK((want.of[0].at(i) == 0) == (i[2] == 5 || i[2] == 69));
    });
    for (const std::size_t of : {1, 2}) {
        for_each_index(want.of[of].shape, [&](const Sizes& i) {
            CHECK((want.of[of].at(i) == 0) == (clean.mask->at({0, i[2]}) == 0));
        });
    }
    // what is seen shows
    TiledProblem seen = clean;
    seen.key.at({0, 1, 70, 3}) = kNan;
    const Gradients shown = gradients_as(seen, as_shared);
    CHECK(std::isnan(shown.of[0].at({0, 2, 1, 0})));
    CHECK(std::isnan(shown.of[2].at({0, 1, 0, 0})));
    CHECK(std::isfinite(shown.of[0].at({0, 1, 1, 0})));
    CHECK(shown.of[0].at({0, 2, 5, 0}) == 0);
    seen = clean;
    seen.dy.at({0, 2, 1, 0}) = kInf;
    const Gradients came = gradients_as(seen, as_shared);
    CHECK(std::isnan(came.of[0].at({0, 2, 1, 0})));
    CHECK_FALSE(std::isfinite(came.of[2].at({0, 1, 0, 0})));
    CHECK(std::isfinite(came.of[2].at({0, 0, 0, 0})));
}

TEST_CASE("attention gradient in tiles: a GPU takes it, the same bits come every time") {
    TiledProblem p = tiled_problem({1, 4, 70, 40}, {1, 2, 70, 40}, 40);
    p.causal = Causal::top_left;
    p.dropout = 0.2f;
    const Gradients gpu = gradients_as(p, as_gpu, 20);
    CHECK(gpu.repeated);
    const bool enough = device().capabilities().storage_buffers >= 12;
    CHECK(in_tiles(gpu.explained) == enough);
    CHECK(contains(gpu.explained, "of keys and values, tiles in shared memory: 64 rows") == enough);
    CHECK_FALSE(contains(gpu.explained, "attention_gradient4"));
    const Gradients few = gradients_as(p, [](Capabilities& c) {
        as_gpu(c);
        c.storage_buffers = 4;
    });
    CHECK(contains(few.explained, "the device has 4 storage buffers a stage, not 11"));
    CHECK_FALSE(in_tiles(few.explained));
    CHECK(difference(gpu, few) == "");
}

TEST_CASE("attention gradient in tiles: sizes decide at run time, none is too small") {
    const Believed gpu(as_gpu);
    Graph g;
    const Dim queries = g.symbol("queries", 90), keys = g.symbol("keys", 120);
    const AttentionOptions o{.mask = {.causal = Causal::bottom_right}, .scale = 0.3f};
    const std::vector<Value> given{g.input("q", {1, 4, queries, 16}), g.input("k", {1, 2, keys, 16}),
                                   g.input("v", {1, 2, keys, 24})};
    const Value y = scaled_dot_product_attention(given[0], given[1], given[2], o).y;
    const std::vector<Value> grads = gradients(y, given, g.input("dy", {1, 4, queries, 24}));
    for (std::size_t i = 0; i < grads.size(); ++i) {
        g.output("out" + std::to_string(i), contiguous(grads[i]));
    }
    std::optional<Program> programs[2];
    programs[0] = device().compile(g);
    {
        const Believed composed(as_composed);
        programs[1] = device().compile(g);
    }
    const std::int64_t sizes[][2] = {{1, 120}, {90, 120}, {17, 33}, {5, 0}, {0, 7}, {64, 64}};
    for (const auto& size : sizes) {
        CAPTURE(size[0]);
        std::vector<Tensor> got[2];
        for (int which = 0; which < 2; ++which) {
            Program& p = *programs[which];
            p.set("queries", size[0]);
            p.set("keys", size[1]);
            upload(p, "q", random_tensor({1, 4, size[0], 16}, 1));
            upload(p, "k", random_tensor({1, 2, size[1], 16}, 2));
            upload(p, "v", random_tensor({1, 2, size[1], 24}, 3));
            upload(p, "dy", random_tensor({1, 4, size[0], 24}, 4));
            p.run();
            for (int i = 0; i < 3; ++i) {
                got[which].push_back(download(p, "out" + std::to_string(i)));
            }
        }
        for (std::size_t i = 0; i < 3; ++i) {
            CHECK(difference(got[0][i], got[1][i], {.absolute = 3e-5, .relative = 3e-4}) == "");
        }
    }
}

TEST_SUITE_END();

}  // namespace vkf::test
