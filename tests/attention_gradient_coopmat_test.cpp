// SPDX-License-Identifier: Apache-2.0
// The gradient of attention of programs for f16, on cooperative matrices: beside the composed one,
// in fp32, of operands rounded to f16.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ops/attention_gradient_tiles.h"
#include "tests/attention_f16.h"
#include "tests/attention_gradient_check.h"
#include "tests/believed.h"
#include "tests/reference_attention.h"

namespace vkf::test {

namespace {

/// An operand as a program for f16 takes it.
TiledProblem rounded_problem(TiledProblem p) {
    const Qkv x = as_f16({p.query, p.key, p.value});
    p.query = x.query;
    p.key = x.key;
    p.value = x.value;
    p.dy = as_f16({p.dy, p.dy, p.dy}).query;
    return p;
}

Tensor magnitudes(Tensor t) {
    for (double& v : t.data) {
        v = std::abs(v);
    }
    return t;
}

/// What a program for f16 adds to the errors of the gradients: weights and ds are rounded, and so
/// were the weights that y, and thus delta, was made of.
std::vector<Tolerance> gradient_tolerances(const TiledProblem& p) {
    reference::AttentionOptions o;
    o.scores.softcap = p.softcap;
    o.scores.causal = p.causal;
    o.scores.window = p.window;
    o.scores.fill = p.fill;
    o.scores.keys = p.mask;
    o.scores.bias = p.bias;
    o.scores.alibi_slopes = p.slopes;
    o.scores.sinks = p.sinks;
    const Tensor weights = reference::attention(p.query, p.key, p.value, o).weights;
    const Tensor q = magnitudes(p.query), k = magnitudes(p.key), v = magnitudes(p.value), dy = magnitudes(p.dy);
    const double keep = 1 / (1 - static_cast<double>(p.dropout)), scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    std::vector<Tolerance> out;
    for (const Tensor* t : {&q, &k, &v}) {
        out.push_back({.absolute = 3e-5, .relative = 3e-4, .rounding = Tensor(t->shape)});
    }
    const std::int64_t group = q.size(1) / k.size(1), keys = k.size(2);
    for (std::int64_t b = 0; b < q.size(0); ++b) {
        for (std::int64_t h = 0; h < q.size(1); ++h) {
            for (std::int64_t i = 0; i < q.size(2); ++i) {
                std::vector<double> products(static_cast<std::size_t>(keys));
                double mean = 0;
                for (std::int64_t j = 0; j < keys; ++j) {
                    double sum = 0;
                    for (std::int64_t c = 0; c < v.size(3); ++c) {
                        sum += dy.at({b, h, i, c}) * v.at({b, h / group, j, c}) * keep;
                    }
                    products[static_cast<std::size_t>(j)] = sum;
                    mean += weights.at({b, h, i, j}) * sum;
                }
                for (std::int64_t j = 0; j < keys; ++j) {
                    const double weight = weights.at({b, h, i, j}) * 0x1p-11,
                                 ds = weight * scale * (products[static_cast<std::size_t>(j)] + 2 * mean);
                    for (std::int64_t c = 0; c < q.size(3); ++c) {
                        out[0].rounding.at({b, h, i, c}) += ds * k.at({b, h / group, j, c});
                        out[1].rounding.at({b, h / group, j, c}) += ds * q.at({b, h, i, c});
                    }
                    for (std::int64_t c = 0; c < v.size(3); ++c) {
                        out[2].rounding.at({b, h / group, j, c}) += weight * keep * dy.at({b, h, i, c});
                    }
                }
            }
        }
    }
    return out;
}

bool on_matrices(const std::string& explained) {
    return contains(explained, "of queries, matrices of") && contains(explained, "of keys and values, matrices of");
}

std::string mismatch_on_matrices(const TiledProblem& given,
                                 const std::function<void(Capabilities&)>& believed = as_forced) {
    const TiledProblem p = rounded_problem(given);
    const Gradients want = gradients_as(p, as_composed), got = gradients_as(given, believed, 1, kF16);
    if (!on_matrices(got.explained)) {
        return "not on matrices:\n" + got.explained;
    }
    return difference(got, want, gradient_tolerances(p));
}

}  // namespace

TEST_SUITE_BEGIN("attention coopmat");

TEST_CASE("attention gradient on matrices: widths of heads and of values, grouped heads, few rows and many") {
    if (!has_matrices()) {
        return;
    }
    CHECK(mismatch_on_matrices(tiled_problem({2, 3, 5, 7}, {2, 3, 40, 7}, 5)) == "");
    CHECK(mismatch_on_matrices(tiled_problem({1, 4, 65, 40}, {1, 2, 33, 40}, 72)) == "");
    CHECK(mismatch_on_matrices(tiled_problem({1, 2, 33, 256}, {1, 2, 40, 256}, 256)) == "");
}

TEST_CASE("attention gradient on matrices: tiles of a GPU, and small shared memory") {
    if (!has_matrices()) {
        return;
    }
    TiledProblem p = tiled_problem({1, 4, 35, 24}, {1, 2, 70, 24}, 24);
    p.causal = Causal::bottom_right;
    p.window = 30;
    // the kernels of a GPU take processors long to compile
    const std::vector<MatrixShape> shapes = device().capabilities().matrix_shapes;
    for (const MatrixShape& shape : {shapes.front(), shapes.back()}) {
        CAPTURE(shape.m);
        CAPTURE(shape.n);
        CAPTURE(shape.k);
        const auto one = [&](Capabilities& c) {
            as_gpu(c);
            c.matrix_shapes = {shape};
        };
        const Believed as(one);
        if (gradient_matrix_tile(device().capabilities(), 70, 24, 24)) {
            CHECK(mismatch_on_matrices(p, one) == "");
        }
    }
    p = tiled_problem({1, 4, 35, 24}, {1, 2, 70, 24}, 40);
    CHECK(mismatch_on_matrices(p, [&](Capabilities& c) {
              as_gpu(c);
              c.shared_memory = 16384;  // all that Vulkan guarantees
          }) == "");
}

TEST_CASE("attention gradient on matrices: every option by itself, and all together") {
    if (!has_matrices()) {
        return;
    }
    const Sizes query{2, 4, 43, 24}, key{2, 2, 75, 24};
    const TiledProblem all = every_option(query, key, 40);
    CHECK(mismatch_on_matrices(all) == "");
    const auto only = [&](auto&& set) {
        TiledProblem p = tiled_problem(query, key, 40);
        set(p);
        return mismatch_on_matrices(p);
    };
    CHECK(only([&](TiledProblem& p) { p.causal = Causal::top_left, p.window = 9; }) == "");
    CHECK(only([&](TiledProblem& p) { p.causal = Causal::bottom_right, p.window = 9, p.fill = -1.0f; }) == "");
    CHECK(only([&](TiledProblem& p) { p.mask = random_integers({4, 1, 75}, 2, 5); }) == "");
    CHECK(only([&](TiledProblem& p) { p.dropout = 0.9f, p.sinks = all.sinks; }) == "");
    TiledProblem dropped = tiled_problem(query, key, 40);
    dropped.dropout = 1.0f;  // the scale of what is kept is 0
    for (const Tensor& t : gradients_as(dropped, as_forced, 1, kF16).of) {
        CHECK(difference(t, Tensor(t.shape), exactly()) == "");
    }
}

TEST_CASE("attention gradient on matrices: small gradients keep their digits, large ones too") {
    if (!has_matrices()) {
        return;
    }
    for (const double size : {1e-4, 3e4}) {
        CAPTURE(size);
        TiledProblem p = tiled_problem({1, 2, 40, 16}, {1, 2, 300, 16}, 16);
        for (double& v : p.dy.data) {
            v = size * (v < 0 ? v - 0.5 : v + 0.5);
        }
        p = rounded_problem(p);
        const Gradients want = gradients_as(p, as_composed), got = gradients_as(p, as_forced, 3, kF16);
        CHECK(got.repeated);
        std::vector<Tolerance> within = gradient_tolerances(p);
        for (std::size_t i = 0; i < 3; ++i) {
            within[i].absolute = 1e-7 * size;
            CHECK(difference(got.of[i], want.of[i], within[i]) == "");
        }
    }
}

TEST_CASE("attention gradient on matrices: all of it is of dy as it is rounded, also where that moves it far") {
    if (!has_matrices()) {
        return;
    }
    constexpr double kSize = 1e-7;  // a few steps of f16's subnormal numbers
    TiledProblem given = tiled_problem({1, 2, 40, 24}, {1, 1, 40, 24}, 24);
    given.causal = Causal::top_left;
    for (double& v : given.dy.data) {
        v *= kSize;
    }
    const TiledProblem p = rounded_problem(given);
    const Gradients want = gradients_as(p, as_composed), got = gradients_as(given, as_forced, 1, kF16);
    CHECK(on_matrices(got.explained));
    std::vector<Tolerance> within = gradient_tolerances(p);
    for (std::size_t i = 0; i < 3; ++i) {
        within[i].absolute = 1e-7 * kSize;
        CHECK(difference(got.of[i], want.of[i], within[i]) == "");
    }
}

TEST_CASE("attention gradient on matrices: what is masked leaves no trace, what is seen shows") {
    if (!has_matrices()) {
        return;
    }
    TiledProblem clean = tiled_problem({1, 4, 37, 24}, {1, 2, 110, 24}, 40);
    clean.mask = holed_mask(37, 110);
    const Gradients want = gradients_as(clean, as_forced, 1, kF16);
    CHECK(on_matrices(want.explained));
    for (const double poison : {kNan, 1e30}) {
        CAPTURE(poison);
        const Gradients got = gradients_as(poisoned(clean, poison), as_forced, 1, kF16);
        for (std::size_t i = 0; i < want.of.size(); ++i) {
            CHECK(same_bits(got.of[i], want.of[i]));
        }
    }
    for (const double poison : {kNan, 1e30}) {
        CAPTURE(poison);
        TiledProblem seen = clean;
        seen.key.at({0, 1, 70, 3}) = poison;
        const Gradients keys = gradients_as(seen, as_forced, 1, kF16);
        CHECK(std::isnan(keys.of[0].at({0, 2, 1, 0})));
        CHECK(std::isfinite(keys.of[0].at({0, 1, 1, 0})));
        CHECK(keys.of[0].at({0, 2, 5, 0}) == 0);
        seen = clean;
        seen.dy.at({0, 2, 1, 0}) = poison;
        const Gradients came = gradients_as(seen, as_forced, 1, kF16);
        CHECK(std::isnan(came.of[0].at({0, 2, 1, 0})));
        CHECK(std::isnan(came.of[2].at({0, 1, 0, 0})));
        CHECK(std::isfinite(came.of[2].at({0, 0, 0, 0})));
    }
}

TEST_CASE("attention gradient on matrices: fp32 stays fp32, f16 says what was taken and why") {
    TiledProblem p = tiled_problem({1, 2, 40, 16}, {1, 2, 40, 16}, 16);
    if (device().capabilities().storage_buffers < 12) {
        return;
    }
    const auto explained = [&](const CompileOptions& options, const char* variants) {
        return gradients_as(
                   p, [&](Capabilities& c) { c.variants = variants; }, 1, options)
            .explained;
    };
    const std::string shared = explained(kF16, "attention_shared");
    CHECK_FALSE(on_matrices(shared));
    CHECK(contains(shared, "attention_gradient_shared"));
    CHECK(contains(shared, "fp32, though f16 was asked for: "));
    if (device().capabilities().cooperative_matrix) {
        CHECK_FALSE(on_matrices(explained({}, "attention_coopmat")));
        CHECK(on_matrices(explained(kF16, "attention_coopmat")));
        CHECK(contains(shared, "VKFORMER_VARIANT asks for attention_shared"));
    }
}

TEST_SUITE_END();

}  // namespace vkf::test
