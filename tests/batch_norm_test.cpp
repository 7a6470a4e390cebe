// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/believed.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr double kEps = static_cast<double>(1e-5f);
constexpr double kMomentum = static_cast<double>(0.1f);

/// Makes positive numbers, as variances are.
Tensor variances(std::int64_t channels) { return reference::add(random_tensor({channels}, 6, 0.4), Tensor({1}, 0.5)); }

}  // namespace

TEST_SUITE_BEGIN("batch_norm");

TEST_CASE("batch_norm: by the batch's own statistics, which move the running ones") {
    for (const Sizes& shape : {Sizes{2, 1}, Sizes{3, 5}, Sizes{64, 7}, Sizes{100, 33}}) {
        CAPTURE(shape[1]);
        const Tensor x = random_tensor(shape, 1, 3);
        const Tensor w = random_tensor({shape[1]}, 2);
        const Tensor b = random_tensor({shape[1]}, 3);
        const Tensor mean = random_tensor({shape[1]}, 4);
        const Tensor var = variances(shape[1]);
        OpCheck check;
        const BatchNormResult y = batch_norm_train(check.input("x", x), check.input("w", w), check.input("b", b),
                                                   check.input("mean", mean), check.input("var", var));
        const reference::BatchNorm want = reference::batch_norm_train(x, w, b, mean, var, kMomentum, kEps);
        CHECK(check.difference(y.y, want.y) == "");
        CHECK(check.difference(y.running_mean, want.running_mean) == "");
        CHECK(check.difference(y.running_var, want.running_var) == "");
    }
}

TEST_CASE("batch_norm: columns far from 0, and such whose rows are equal") {
    const auto checked = [](const Tensor& x, const Tolerance& tolerance) {
        const std::int64_t channels = x.shape[1];
        const Tensor one({channels}, 1.0), none({channels}, 0.0);
        OpCheck check;
        const BatchNormResult y = batch_norm_train(check.input("x", x), check.input("w", one), check.input("b", none),
                                                   check.input("mean", none), check.input("var", one));
        const reference::BatchNorm want = reference::batch_norm_train(x, one, none, none, one, kMomentum, kEps);
        return check.difference(y.y, want.y, tolerance) + check.difference(y.running_mean, want.running_mean) +
               check.difference(y.running_var, want.running_var);
    };
    const std::vector<double> at{0, 10, 1000};
    Tensor far = random_tensor({4099, 3}, 1);
    for (std::size_t i = 0; i < far.data.size(); ++i) {
        // what fp32 holds
        far.data[i] = static_cast<double>(static_cast<float>(far.data[i] + at[i % 3]));
    }
    const std::vector<double> equal{1, 255, -1000};
    Tensor same({5000, 3});
    for (std::size_t i = 0; i < same.data.size(); ++i) {
        same.data[i] = equal[i % 3];
    }
    const auto each = [&](std::string (*run)(const Tensor&, const Tolerance&)) {
        CHECK(run(far, {}) == "");
        // what is left of 1000 is 2e-9 of it, over the square root of eps
        CHECK(run(same, {1e-3, 1e-4, {}}) == "");
    };
    each(checked);
    const Believed gpu(as_gpu);
    each(checked);
}

TEST_CASE("batch_norm: an infinity stays in its column, and in the running mean") {
    Tensor x = random_tensor({6, 3}, 1);
    x.at({2, 1}) = kInf;
    const Tensor one({3}, 1.0), none({3}, 0.0);
    OpCheck check;
    const BatchNormResult y = batch_norm_train(check.input("x", x), check.input("w", one), check.input("b", none),
                                               check.input("mean", none), check.input("var", one));
    const reference::BatchNorm want = reference::batch_norm_train(x, one, none, none, one, kMomentum, kEps);
    CHECK(std::isinf(want.running_mean.at({1})));
    CHECK(check.difference(y.y, want.y) == "");
    CHECK(check.difference(y.running_mean, want.running_mean) == "");
    CHECK(check.difference(y.running_var, want.running_var) == "");
}

TEST_CASE("batch_norm: by the running statistics, at any number of rows") {
    const Tensor x = random_tensor({5, 6}, 1, 3);
    const Tensor w = random_tensor({6}, 2);
    const Tensor b = random_tensor({6}, 3);
    const Tensor mean = random_tensor({6}, 4);
    const Tensor var = variances(6);
    OpCheck check;
    const Dim rows = check.graph.symbol("rows", 9);
    check.set("rows", 5);
    const Value y = batch_norm(check.input("x", x, {rows, 6}), check.input("w", w), check.input("b", b),
                               check.input("mean", mean), check.input("var", var));
    CHECK(check.difference(y, reference::batch_norm(x, w, b, mean, var, kEps)) == "");
}

TEST_CASE("batch_norm: bad arguments are refused by name") {
    Graph g;
    const Value x = g.input("x", {4, 6});
    const Value c = g.input("c", {6});
    CHECK(contains(error_of([&] { batch_norm(x, g.input("narrow", {5}), c, c, c); }), "batch_norm: narrow (5)"));
    CHECK(contains(error_of([&] { batch_norm(x, g.input("ids", {6}, DType::i32), c, c, c); }),
                   "batch_norm: ids (6) I32"));
    CHECK(contains(error_of([&] { batch_norm(g.input("cube", {2, 3, 6}), c, c, c, c); }), "cube (2, 3, 6)"));
    CHECK(contains(error_of([&] { batch_norm(x, c, c, c, c, NAN); }), "eps"));
    CHECK(contains(error_of([&] { batch_norm_train(x, c, c, c, c, NAN); }), "momentum"));
    CHECK(contains(error_of([&] { batch_norm_train(g.input("row", {1, 6}), c, c, c, c); }), "row (1, 6)"));
}

TEST_SUITE_END();
