// SPDX-License-Identifier: Apache-2.0
// Ops keep to their tensors, whatever the sizes: see tests/fenced.h.
#include <doctest/doctest.h>

#include "ops/ops.h"
#include "tests/fenced.h"
#include "tests/op_check.h"

namespace vkf::test {

TEST_SUITE_BEGIN("bounds");

TEST_CASE("bounds: the fences see") {
    Fenced fenced;
    const auto copy = [](Graph& g) { return std::vector{contiguous(g.input("x", {3, 50}))}; };
    CHECK(fenced.trespass(copy) == "");
    fenced.shift = 256;
    const std::string found = fenced.trespass(copy);
    CHECK(contains(found, "y0: not written, element 0 of 150"));
    CHECK(contains(found, "y0 depends on what lies outside the tensors"));
}

TEST_CASE("bounds: row ops at every width") {
    Fenced fenced;
    struct Sizes {
        std::int64_t rows, width;
    };
    for (const Sizes s : {Sizes{1, 1},
                          {3, 3},
                          {17, 4},
                          {5, 5},
                          {33, 8},
                          {2, 31},
                          {16, 64},
                          {7, 257},
                          {130, 260},
                          {515, 1023},
                          {512, 1024}}) {
        CAPTURE(s.rows);
        CAPTURE(s.width);
        const auto with = [&](auto op) {
            return fenced.trespass([&](Graph& g) {
                const auto vector = [&](const char* name) { return g.input(name, {s.width}); };
                return std::vector{op(g.input("x", {s.rows, s.width}), vector)};
            });
        };
        CHECK(with([](Value x, auto) { return contiguous(x); }) == "");
        CHECK(with([](Value x, auto) { return softmax(x); }) == "");
        CHECK(with([](Value x, auto vector) { return layer_norm(x, vector("weight"), vector("bias")); }) == "");
        CHECK(with([](Value x, auto vector) { return rms_norm(x, vector("weight")); }) == "");
        CHECK(with([](Value x, auto) { return argmax(x); }) == "");
        CHECK(with([](Value x, auto vector) { return gelu(x + vector("bias")); }) == "");
    }
}

TEST_CASE("bounds: rows of fewer elements than there may be") {
    Fenced fenced;
    for (const std::int64_t rows : {0, 1, 9, 40}) {
        CAPTURE(rows);
        const auto with = [&](auto op) {
            return fenced.trespass(
                [&](Graph& g) {
                    const Dim n = g.symbol("rows", 40);
                    return std::vector{op(g.input("x", {n, 24}), g.input("square", {n, n}))};
                },
                {{"rows", rows}});
        };
        CHECK(with([](Value x, Value) { return layer_norm(x, {}, {}); }) == "");
        CHECK(with([](Value, Value square) { return softmax(square, {.mask = {.causal = Causal::top_left}}); }) == "");
        CHECK(with([](Value x, Value square) { return matmul(square, x); }) == "");
        CHECK(with([](Value x, Value square) { return matmul(x, x, {.transpose_b = true}) + square; }) == "");
    }
}

TEST_CASE("bounds: scores with masks, biases and all that softmax() takes") {
    Fenced fenced;
    for (const std::int64_t keys : {7, 20, 300}) {
        CAPTURE(keys);
        const auto with = [&](auto op) {
            return fenced.trespass([&](Graph& g) {
                SoftmaxOptions o{.scale = 0.5f, .softcap = 3.0f};
                o.mask = {.keys = g.input("mask", {2, 1, 1, keys}, DType::i32),
                          .bias = g.input("bias", {5, keys}),
                          .alibi_slopes = g.input("slopes", {3}),
                          .causal = Causal::bottom_right,
                          .window = 4};
                return op(g.input("x", {2, 3, 5, keys}), o);
            });
        };
        CHECK(with([](Value x, const SoftmaxOptions& o) {
                  return std::vector{softmax(x, o), log_sum_exp(x, o)};
              }) == "");
        CHECK(with([](Value x, const SoftmaxOptions& o) { return std::vector{hard_max(x, o)}; }) == "");
    }
}

TEST_CASE("bounds: products") {
    Fenced fenced;
    struct Sizes {
        std::int64_t rows, inner, columns;
    };
    for (const Sizes s : {Sizes{1, 1, 1},
                          {1, 64, 64},
                          {3, 5, 7},
                          {4, 8, 12},
                          {5, 36, 33},
                          {65, 17, 70},
                          {129, 4, 68},
                          {200, 64, 132},
                          {512, 512, 512}}) {
        CAPTURE(s.rows);
        CAPTURE(s.inner);
        CAPTURE(s.columns);
        CHECK(fenced.trespass([&](Graph& g) {
            return std::vector{matmul(g.input("a", {s.rows, s.inner}), g.input("b", {s.inner, s.columns}))};
        }) == "");
        CHECK(fenced.trespass([&](Graph& g) {
            return std::vector{linear(g.input("x", {s.rows, s.inner}), g.input("weight", {s.columns, s.inner}),
                                      g.input("bias", {s.columns}), Activation::gelu)};
        }) == "");
        if (s.rows < 500) {
            CHECK(fenced.trespass([&](Graph& g) {
                const Value y = matmul(g.input("a", {2, 3, s.rows, s.inner}), g.input("b", {2, 1, s.inner, s.columns}),
                                       {.masked_weights = true, .heads_last = true});
                return std::vector{merge_heads(y)};
            }) == "");
        }
    }
}

TEST_CASE("bounds: positions, gathering, copying and training's forward ops") {
    Fenced fenced;
    const auto sees = [&](auto build) {
        return fenced.trespass([&](Graph& g) { return std::vector<Value>(build(g)); });
    };
    for (const std::int64_t width : {6, 16, 128}) {
        CAPTURE(width);
        for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
            const Rope options{.layout = layout, .rotary_dim = width / 4 * 2, .max_positions = 9};
            CHECK(sees([&](Graph& g) { return std::vector{rope(g.input("x", {3, 9, width}), options)}; }) == "");
            CHECK(sees([&](Graph& g) {
                      return std::vector{rope_at(g.input("x", {3, 9, width}), g.input("at", {9}, DType::i32), options)};
                  }) == "");
        }
        CHECK(sees([&](Graph& g) {
                  return std::vector{embedding(g.input("ids", {3, 5}, DType::i32), g.input("table", {2, width}), 2.0f)};
              }) == "");
        CHECK(sees([&](Graph& g) { return std::vector{repeat_kv(g.input("x", {2, 3, 2, width}), 3)}; }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{concat({g.input("a", {3, width}), g.input("b", {3, 5})}, 1)};
              }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{contiguous(transpose(g.input("x", {2, 7, width}), 1, 2))};
              }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{gated(g.input("gate", {5, width}), g.input("up", {5, width}), Activation::silu)};
              }) == "");
        CHECK(sees([&](Graph& g) { return std::vector{dropout(g.input("x", {5, width}), 0.5f, 3)}; }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{cross_entropy(g.input("logits", {5, width}), g.input("labels", {5}, DType::i32))};
              }) == "");
        CHECK(sees([&](Graph& g) {
                  const auto vector = [&](const char* name) { return g.input(name, {width}); };
                  const BatchNormResult r = batch_norm_train(g.input("x", {5, width}), vector("weight"), vector("bias"),
                                                             vector("mean"), vector("var"));
                  return std::vector{r.y, r.running_mean, r.running_var};
              }) == "");
    }
}

TEST_SUITE_END();

}  // namespace vkf::test
