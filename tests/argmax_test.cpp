// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>

#include "ops/argmax_of_finite.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

std::string argmax_mismatch(const Tensor& x) {
    OpCheck check;
    const Value y = argmax(check.input("x", x));
    return y.dtype() == DType::i32 ? check.difference(y, reference::argmax(x), exactly()) : "not I32";
}

}  // namespace

TEST_SUITE_BEGIN("argmax");

TEST_CASE("argmax: widths from 1 to beyond a group, every rank") {
    for (const Sizes& shape : {Sizes{1}, Sizes{9}, Sizes{3, 1}, Sizes{4, 2}, Sizes{2, 3, 31}, Sizes{5, 127},
                               Sizes{3, 256}, Sizes{3, 257}, Sizes{2, 2, 1, 3, 1001}}) {
        CAPTURE(shape.back());
        CHECK(argmax_mismatch(random_tensor(shape, 7)) == "");
        CHECK(argmax_mismatch(random_tensor(shape, 8, 1e5)) == "");
    }
}

TEST_CASE("argmax: of equals the first, wherever they lie") {
    CHECK(argmax_mismatch(random_integers({20, 300}, 3, 1)) == "");
    CHECK(argmax_mismatch(random_integers({20, 33}, 2, 2)) == "");
    CHECK(argmax_mismatch(Tensor({3, 500}, -1.0)) == "");
    CHECK(argmax_mismatch(Tensor({3, 500}, -kInf)) == "");
    CHECK(argmax_mismatch(Tensor({2, 3}, {0.0, -0.0, -1.0, -0.0, 0.0, -1.0})) == "");
    Tensor x({1, 400}, 0.0);
    x.data[37] = x.data[38] = x.data[133] = x.data[399] = kInf;
    CHECK(argmax_mismatch(x) == "");
}

TEST_CASE("argmax: a NaN counts as largest, the first of them") {
    Tensor x = random_tensor({4, 300}, 1);
    x.at({0, 299}) = kNan;
    x.at({1, 0}) = kNan;
    x.at({1, 5}) = kInf;
    x.at({2, 150}) = x.at({2, 22}) = x.at({2, 280}) = kNan;
    CHECK(argmax_mismatch(x) == "");
    CHECK(argmax_mismatch(Tensor({2, 40}, kNan)) == "");
}

TEST_CASE("argmax: of rows that should be finite, the complement of the index says that the largest is not") {
    for (const std::int64_t width : {3, 300, 5000}) {
        CAPTURE(width);
        Tensor x = random_tensor({6, width}, 1);
        x.at({0, width - 1}) = kNan;
        x.at({1, 1}) = kInf;
        x.at({2, 0}) = -kInf;  // which is not the largest
        x.at({4, 1}) = 3e38;
        std::fill_n(x.data.begin() + 5 * width, width, -kInf);
        Tensor want = reference::argmax(x);
        for (const std::int64_t row : {0, 1, 5}) {
            want.at({row}) = -1 - want.at({row});
        }
        OpCheck check;
        CHECK(difference(check.run(argmax_of_finite(check.input("x", x))), want, exactly()) == "");
    }
}

TEST_CASE("argmax: strided input, no rows, and more than 65,535 groups of them") {
    const Tensor x = random_tensor({6, 5}, 1);
    OpCheck strided;
    CHECK(strided.difference(argmax(transpose(strided.input("x", x), 0, 1)), reference::argmax(transpose(x, 0, 1)),
                             exactly()) == "");
    OpCheck empty;
    const Dim tokens = empty.graph.symbol("tokens", 5);
    empty.set("tokens", 0);
    CHECK(empty.difference(argmax(empty.input("x", Tensor({0, 4}), {tokens, 4})), Tensor(Sizes{0})) == "");
    OpCheck no_elements;
    const Dim width = no_elements.graph.symbol("width", 5);
    const Value index = argmax(no_elements.input("x", Tensor({3, 0}), {3, width}));
    no_elements.set("width", 0);
    CHECK(
        contains(error_of([&] { no_elements.run(index); }), "argmax: elements needed of each row of x (3, width) F32"));
    const std::int64_t rows = 65535 * (device().capabilities().cpu() ? 16 : 4) + 17;
    const Tensor pairs = random_tensor({rows, 2}, 3);
    OpCheck many;
    CHECK(difference(many.run(argmax(many.input("x", pairs))), reference::argmax(pairs), exactly()) == "");
}

TEST_CASE("argmax: bad arguments are refused by name") {
    Graph g;
    CHECK(contains(error_of([&] {
                       argmax(g.input("ids", {3, 8}, DType::i32));
                   }),
                   "argmax: ids (3, 8) I32 must be F32"));
    CHECK(contains(error_of([&] { argmax(g.input("scalar", {})); }), "scalar"));
}

TEST_SUITE_END();
