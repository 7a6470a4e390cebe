// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/graph/node.h"
#include "runtime/graph/views.h"
#include "tests/unit/text.h"

using namespace vkf;
using vkf::test::contains;
using vkf::test::error_of;

namespace {

using Places = std::vector<std::int64_t>;

/// Gives the place of each element of the view in its storage, in row-major order, at these values
/// of the symbols.
Places places(const Value& x, const std::vector<std::int64_t>& symbols = {}) {
    const ValueInfo& info = x.graph().values()[x.id()];
    Places out{info.offset.eval(symbols)};
    for (std::size_t d = 0; d < info.shape.size(); ++d) {
        Places next;
        for (const std::int64_t place : out) {
            for (std::int64_t i = 0; i < info.shape[d].eval(symbols); ++i) {
                next.push_back(place + i * info.strides[d].eval(symbols));
            }
        }
        out = next;
    }
    return out;
}

Places count_up(std::int64_t n) {
    Places out(static_cast<std::size_t>(n));
    std::iota(out.begin(), out.end(), 0);
    return out;
}

}  // namespace

TEST_CASE("views: reshape keeps the order of elements") {
    Graph g;
    const Value x = g.input("x", {4, 6});
    for (const Shape& shape : {Shape{24}, Shape{2, 2, 6}, Shape{4, 2, 3}, Shape{3, 8}, Shape{1, 24, 1}, Shape{2, 1, 12},
                               Shape{4, -1}, Shape{-1, 3}}) {
        CHECK(places(reshape(x, shape)) == count_up(24));
    }
    CHECK(reshape(x, {-1, 3}).shape() == Shape{8, 3});
    CHECK(places(reshape(transpose(x, 0, 1), {3, 2, 4})) == places(transpose(x, 0, 1)));
    CHECK(places(reshape(slice(x, 1, 1, 4), {4, 2, 2})) == places(slice(x, 1, 1, 4)));
    CHECK(places(reshape(slice(x, 0, 1, 2), {12})) == places(slice(x, 0, 1, 2)));
    CHECK(reshape(g.input("scalar", {}), {1, 1}).shape() == Shape{1, 1});
}

TEST_CASE("views: reshape with symbols") {
    Graph g;
    const Dim batch = g.symbol("batch", 3);
    const Dim tokens = g.symbol("tokens", 9);
    const Value x = g.input("x", {batch, tokens, 8});
    CHECK(reshape(x, {batch * tokens, 8}).shape() == Shape{batch * tokens, 8});
    CHECK(reshape(x, {-1, 8}).shape() == Shape{batch * tokens, 8});
    CHECK(reshape(x, {batch, tokens, 2, -1}).shape() == Shape{batch, tokens, 2, 4});
    CHECK(reshape(x, {batch, -1, 4}).shape() == Shape{batch, 2 * tokens, 4});
    CHECK(places(reshape(reshape(x, {-1, 8}), {batch, tokens, 8}), {2, 5}) == count_up(80));
    CHECK(error_of([&] { reshape(x, {batch, 8, tokens}); }).empty());  // the count is the same
    CHECK(contains(error_of([&] { reshape(x, {batch + 1, tokens, 8}); }), "element counts differ"));
}

TEST_CASE("views: reshape refuses what needs a copy, and names it") {
    Graph g;
    const Value x = g.input("x", {4, 6});
    CHECK(contains(error_of([&] {
                       reshape(x, {5, 5});
                   }),
                   "x (4, 6) F32 cannot take shape (5, 5): the element counts differ"));
    CHECK(contains(error_of([&] { reshape(transpose(x, 0, 1), {24}); }), "contiguous()"));
    CHECK(contains(error_of([&] { reshape(slice(x, 1, 0, 3), {12}); }), "contiguous()"));
    CHECK(contains(error_of([&] { reshape(x, {7, -1}); }), "cannot take shape"));
    CHECK_FALSE(error_of([&] { reshape(x, {-1, -1}); }).empty());
}

TEST_CASE("views: transpose and permute move dimensions") {
    Graph g;
    const Value x = g.input("x", {2, 3});
    CHECK(places(transpose(x, 0, 1)) == Places{0, 3, 1, 4, 2, 5});
    CHECK(places(transpose(x, -1, -2)) == places(transpose(x, 0, 1)));
    CHECK(places(transpose(transpose(x, 0, 1), 0, 1)) == count_up(6));
    const Value y = g.input("y", {2, 3, 4});
    CHECK(permute(y, {2, 0, 1}).shape() == Shape{4, 2, 3});
    CHECK(places(slice(permute(y, {2, 0, 1}), 0, 1, 1)) == Places{1, 5, 9, 13, 17, 21});
    CHECK(contains(error_of([&] { transpose(x, 0, 2); }), "dimension 2 of x (2, 3)"));
    CHECK(contains(error_of([&] { permute(y, {0, 1}); }), "permutation"));
    CHECK(contains(error_of([&] { permute(y, {0, 1, 1}); }), "permutation"));
}

TEST_CASE("views: slice takes a run of a dimension") {
    Graph g;
    const Value x = g.input("x", {3, 4});
    CHECK(places(slice(x, 0, 1, 2)) == Places{4, 5, 6, 7, 8, 9, 10, 11});
    CHECK(places(slice(x, 1, 1, 2)) == Places{1, 2, 5, 6, 9, 10});
    CHECK(places(slice(slice(x, -1, 1, 3), -1, 1, 1)) == Places{2, 6, 10});
    CHECK(contains(error_of([&] { slice(x, 1, 2, 3); }), "slice 2..5 of dimension 1 of x (3, 4)"));
    CHECK(contains(error_of([&] { slice(x, 1, -1, 2); }), "outside"));
    CHECK_FALSE(error_of([&] { slice(x, 1, 0, -1); }).empty());
    CHECK(contains(error_of([&] { slice(x, 2, 0, 1); }), "dimension 2"));
    const std::int64_t far = std::numeric_limits<std::int64_t>::max() - 3;
    CHECK(contains(error_of([&] { slice(x, 1, far, 12); }),
                   "slice of 12 from 9223372036854775804 on, of dimension 1 of x (3, 4) F32, lies outside it"));
    CHECK(contains(error_of([&] { slice(x, 1, 12, far); }), "of dimension 1 of x (3, 4) F32, lies outside it"));
    CHECK(contains(error_of([&] { slice(x, 1, far, far); }), "lies outside it"));
    const Dim start = g.symbol("start", 4);
    CHECK(contains(error_of([&] { slice(x, 1, start, 5 - start); }), "lies outside"));
    CHECK(error_of([&] { slice(x, 1, start, 4 - start); }).empty());
    CHECK(contains(error_of([&] { slice(g.input("y", {start, 2}), 0, 5, 1); }), "lies outside it"));
}

TEST_CASE("views: a slice with symbols is checked when it runs") {
    Graph g;
    const Dim start = g.symbol("start", 10);
    const Dim count = g.symbol("count", 10);
    const Value cache = g.state("cache", {10, 2});
    const Value window = slice(cache, 0, start, count);
    CHECK(places(window, {3, 2}) == Places{6, 7, 8, 9});
    CHECK(places(window, {3, 0}).empty());
    const auto holds = [&](std::int64_t s, std::int64_t c) {
        bool all = true;
        for (const Constraint& constraint : g.constraints()) {
            const std::vector<std::int64_t> values{s, c};
            all = all && constraint.value.eval(values) <= constraint.limit.eval(values);
        }
        return all;
    };
    CHECK(holds(0, 10));
    CHECK(holds(10, 0));
    CHECK_FALSE(holds(5, 6));
    slice(cache, 0, count - start, 1);
    CHECK_FALSE(holds(5, 4));
    CHECK(holds(4, 5));
    const std::size_t before = g.constraints().size();
    // the whole of it: nothing to check beyond its being a size
    slice(g.input("x", {count, 3}), 0, 0, count);
    CHECK(holds(1, 1));
    CHECK(g.constraints().size() <= before + 1);
}

TEST_CASE("views: a slice that is refused leaves no condition of a run") {
    Graph g;
    const Dim rows = g.symbol("rows", 4);
    const Value x = g.input("x", {rows, 8});
    CHECK(error_of([&] { slice(x, 1, 0, rows - Dim(5)); }) != "");
    CHECK(g.constraints().empty());
}

TEST_CASE("views: broadcasting repeats sizes of 1") {
    Graph g;
    const Value x = g.input("x", {2, 1, 3});
    CHECK(places(broadcast_to(x, {2, 2, 3})) == Places{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
    CHECK(places(broadcast_to(g.input("row", {2}), {2, 2})) == Places{0, 1, 0, 1});
    CHECK(places(broadcast_to(g.input("scalar", {}), {3})) == Places{0, 0, 0});
    CHECK(contains(error_of([&] { broadcast_to(x, {2, 2, 4}); }), "x (2, 1, 3) F32 does not broadcast to (2, 2, 4)"));
    CHECK(contains(error_of([&] { broadcast_to(x, {2, 3}); }), "more dimensions"));
    const Dim tokens = g.symbol("tokens", 4);
    CHECK(places(broadcast_to(x, {2, tokens, 3}), {2}) == places(broadcast_to(x, {2, 2, 3})));
    CHECK_FALSE(error_of([&] { broadcast_to(g.input("t", {tokens}), {4}); }).empty());
}

TEST_CASE("views: two operands' shape together") {
    Graph g;
    const Dim n = g.symbol("n", 5);
    const Value x = g.input("x", {2, 1, n});
    const Value y = g.input("y", {3, 1});
    CHECK(broadcast_shapes("op", x, y) == Shape{2, 3, n});
    CHECK(broadcast_shapes("op", y, x) == Shape{2, 3, n});
    const std::string error = error_of([&] { broadcast_shapes("op", x, g.input("z", {4})); });
    CHECK(contains(error, "op: x (2, 1, n) F32 and z (4) F32 do not broadcast: dimension 2 is n against 4"));
}

TEST_CASE("views: heads are split and merged without a copy") {
    Graph g;
    const Dim tokens = g.symbol("tokens", 7);
    const Value x = g.input("x", {2, tokens, 12});
    const Value heads = split_heads(x, 3);
    CHECK(heads.shape() == Shape{2, 3, tokens, 4});
    CHECK(places(slice(slice(heads, 0, 1, 1), 1, 2, 1), {2}) == Places{32, 33, 34, 35, 44, 45, 46, 47});
    CHECK(merge_heads(heads).shape() == x.shape());
    CHECK(places(merge_heads(heads), {5}) == count_up(120));
    CHECK(contains(error_of([&] { split_heads(x, 5); }),
                   "width 12 of x (2, tokens, 12) F32 does not divide into 5 heads"));
    CHECK_FALSE(error_of([&] { split_heads(x, 0); }).empty());
    CHECK_FALSE(error_of([&] { split_heads(g.input("row", {12}), 3); }).empty());
    CHECK_FALSE(error_of([&] { merge_heads(g.input("matrix", {3, 4})); }).empty());
    CHECK(contains(error_of([&] { merge_heads(g.input("stored", {2, 3, 5, 4})); }), "contiguous()"));
}

TEST_CASE("views: contiguity") {
    Graph g;
    const Value x = g.input("x", {3, 4});
    CHECK(is_contiguous(x));
    CHECK(is_contiguous(reshape(x, {12})));
    CHECK(is_contiguous(slice(x, 0, 1, 2)));
    CHECK_FALSE(is_contiguous(slice(x, 1, 0, 2)));
    CHECK_FALSE(is_contiguous(transpose(x, 0, 1)));
    CHECK_FALSE(is_contiguous(broadcast_to(g.input("row", {4}), {3, 4})));
    CHECK(is_contiguous(transpose(g.input("column", {5, 1}), 0, 1)));
    CHECK(is_contiguous(g.input("scalar", {})));
}
