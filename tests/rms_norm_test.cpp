// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

std::string rms_norm_mismatch(const Tensor& x, const std::optional<Tensor>& weight = {}, float eps = 1e-6f) {
    OpCheck check;
    const Value y = rms_norm(check.input("x", x), weight ? check.input("weight", *weight) : Value(), eps);
    return check.difference(y, reference::rms_norm(x, weight, static_cast<double>(eps)));
}

}  // namespace

TEST_SUITE_BEGIN("rms_norm");

TEST_CASE("rms_norm: widths from 1 to beyond a group, with and without weight") {
    for (const Sizes& shape :
         {Sizes{1}, Sizes{5}, Sizes{3, 1}, Sizes{2, 3, 33}, Sizes{5, 128}, Sizes{17, 257}, Sizes{2, 4099}}) {
        CAPTURE(shape.back());
        const Tensor x = random_tensor(shape, 1, 3);
        CHECK(rms_norm_mismatch(x) == "");
        CHECK(rms_norm_mismatch(x, random_tensor({shape.back()}, 2), 1e-3f) == "");
    }
}

TEST_CASE("rms_norm: values of +-1e5 and 0, and what is not finite stays in its row") {
    CHECK(rms_norm_mismatch(random_tensor({3, 50}, 1, 1e5)) == "");
    CHECK(rms_norm_mismatch(Tensor({2, 7}, 0.0)) == "");
    CHECK(rms_norm_mismatch(random_tensor({2, 30}, 1, 1e-4)) == "");
    Tensor x = random_tensor({4, 20}, 2);
    x.at({1, 3}) = std::numeric_limits<double>::quiet_NaN();
    x.at({2, 19}) = -std::numeric_limits<double>::infinity();
    CHECK(rms_norm_mismatch(x) == "");
}

TEST_CASE("rms_norm: strided input, no rows, and the same bits every time") {
    const Tensor x = random_tensor({6, 5}, 1);
    OpCheck strided;
    CHECK(strided.difference(rms_norm(transpose(strided.input("x", x), 0, 1), {}),
                             reference::rms_norm(transpose(x, 0, 1), {}, static_cast<double>(1e-6f))) == "");
    OpCheck empty;
    const Dim tokens = empty.graph.symbol("tokens", 5);
    empty.set("tokens", 0);
    CHECK(empty.difference(rms_norm(empty.input("x", Tensor({2, 0, 4}), {2, tokens, 4}), {}), Tensor({2, 0, 4})) == "");
    OpCheck check;
    const Value y = rms_norm(check.input("x", random_tensor({9, 333})), {});
    const Tensor first = check.run(y);
    for (int repeat = 0; repeat < 20; ++repeat) {
        CHECK(same_bits(first, check.run(y)));
    }
}

TEST_CASE("rms_norm: more than 65,535 groups of rows") {
    const std::int64_t rows = 65535 * (device().capabilities().cpu() ? 16 : 4) + 17;
    OpCheck check;
    const Tensor got =
        check.run(rms_norm(check.input("x", Tensor({rows, 1}, 7.0)), check.input("weight", Tensor({1}, 0.5)), 0));
    CHECK(difference(got, Tensor({rows, 1}, 0.5)) == "");
}

TEST_CASE("rms_norm: bad arguments are refused by name") {
    Graph g;
    const Value x = g.input("x", {3, 8});
    CHECK(contains(error_of([&] { rms_norm(x, {}, NAN); }), "rms_norm: eps"));
    CHECK(contains(error_of([&] { rms_norm(x, g.input("narrow", {7})); }), "narrow (7)"));
    CHECK(contains(error_of([&] { rms_norm(g.input("ids", {3, 8}, DType::i32), {}); }), "ids (3, 8) I32 must be F32"));
}

TEST_SUITE_END();
