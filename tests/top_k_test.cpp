// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/ops.h"
#include "tests/device.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// True where a comes before b: NaN first, then larger first; equals keep their order.
bool before(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

std::string top_k_mismatch(const Tensor& x, std::int64_t k) {
    Sizes shape(x.shape.begin(), x.shape.end() - 1);
    shape.push_back(k);
    Tensor values(shape), indices(shape);
    const auto width = static_cast<std::size_t>(x.size(-1));
    const auto count = static_cast<std::size_t>(k);
    for (std::size_t row = 0; row * width < x.data.size(); ++row) {
        const double* v = x.data.data() + row * width;
        std::vector<std::size_t> order(width);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return before(v[a], v[b]); });
        for (std::size_t i = 0; i < count; ++i) {
            values.data[row * count + i] = v[order[i]];
            indices.data[row * count + i] = static_cast<double>(order[i]);
        }
    }
    OpCheck check;
    const TopK best = top_k(check.input("x", x), k);
    const std::string wrong = check.difference(best.indices, indices, exactly());
    return wrong.empty() ? check.difference(best.values, values, exactly()) : wrong;
}

}  // namespace

TEST_SUITE_BEGIN("top_k");

TEST_CASE("top_k: every k of narrow rows, and wide rows of every rank") {
    for (std::int64_t k = 1; k <= 9; ++k) {
        CHECK(top_k_mismatch(random_tensor({3, 9}, static_cast<std::uint32_t>(k)), k) == "");
    }
    for (const std::int64_t k : {1, 2, 40, 127, 128}) {
        CAPTURE(k);
        CHECK(top_k_mismatch(random_tensor({128}, 2), k) == "");
        CHECK(top_k_mismatch(random_tensor({2, 3, 129}, 3, 1e30), k) == "");
        CHECK(top_k_mismatch(random_tensor({2, 5003}, 4, 1e-30), k) == "");
        CHECK(top_k_mismatch(random_tensor({9, 300}, 5), k) == "");
    }
}

TEST_CASE("top_k: of equals the first, wherever they lie") {
    CHECK(top_k_mismatch(Tensor({2, 1000}, 1.5), 50) == "");
    CHECK(top_k_mismatch(Tensor({2, 130}, -kInf), 128) == "");
    CHECK(top_k_mismatch(random_integers({8, 700}, 3, 1), 100) == "");
    CHECK(top_k_mismatch(random_integers({8, 700}, 40, 2), 100) == "");
    CHECK(top_k_mismatch(Tensor({1, 6}, {0.0, -0.0, -1.0, -0.0, 0.0, -1.0}), 5) == "");
}

TEST_CASE("top_k: infinities and NaN have their places") {
    Tensor x = random_tensor({4, 400}, 1);
    x.at({0, 399}) = kInf;
    x.at({0, 3}) = -kInf;
    x.at({1, 7}) = x.at({1, 300}) = kNan;
    x.at({1, 8}) = kInf;
    x.at({2, 0}) = kNan;
    CHECK(top_k_mismatch(x, 5) == "");
    CHECK(top_k_mismatch(Tensor({2, 40}, kNan), 40) == "");
}

TEST_CASE("top_k: what it cannot do is said") {
    Graph g;
    const Value x = g.input("x", {2, 20});
    CHECK(contains(error_of([&] { top_k(x, 0); }), "top_k: k = 0 of x (2, 20) F32 is outside 1..20"));
    CHECK(contains(error_of([&] { top_k(x, 21); }), "k = 21"));
    CHECK(contains(error_of([&] { top_k(g.input("wide", {1000}), 129); }), "outside 1..128"));
    CHECK(contains(error_of([&] { top_k(g.input("ids", {9}, DType::i32), 2); }), "F32"));
}
