// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("sinusoidal_positions");

TEST_CASE("sinusoidal_positions: every size, odd widths, positions far out") {
    for (const Sizes& shape : {Sizes{1, 1}, Sizes{1, 2}, Sizes{7, 5}, Sizes{50, 64}, Sizes{8192, 6}}) {
        CAPTURE(shape[0]);
        OpCheck check;
        const Value y = sinusoidal_positions(check.graph, shape[0], shape[1]);
        CHECK(check.difference(contiguous(y), reference::sinusoidal_positions(shape[0], shape[1]), {1e-7, 0}) == "");
    }
}

TEST_CASE("sinusoidal_positions: a slice is added to as many tokens as there are") {
    OpCheck check;
    const Dim tokens = check.graph.symbol("tokens", 10);
    const Tensor x = random_tensor({2, 7, 6});
    const Value table = sinusoidal_positions(check.graph, 10, 6);
    const Value y = check.input("x", x, {2, tokens, 6}) + slice(table, 0, 0, tokens);
    check.set("tokens", 7);
    CHECK(check.difference(y, reference::add(x, slice(reference::sinusoidal_positions(10, 6), 0, 0, 7))) == "");
}

TEST_CASE("sinusoidal_positions: sizes that are not positive are refused") {
    Graph g;
    CHECK(contains(error_of([&] { sinusoidal_positions(g, 0, 4); }), "sinusoidal_positions: length 0"));
    CHECK(contains(error_of([&] { sinusoidal_positions(g, 4, -1); }), "dim -1"));
}

TEST_SUITE_END();
