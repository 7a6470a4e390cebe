// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

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
        CHECK(check.difference(y.y, want.y, {1e-4, 1e-4}) == "");
        CHECK(check.difference(y.running_mean, want.running_mean) == "");
        CHECK(check.difference(y.running_var, want.running_var) == "");
    }
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
