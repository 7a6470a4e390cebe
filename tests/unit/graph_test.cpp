// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/compile/lowering.h"
#include "runtime/graph/edit.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/views.h"
#include "tests/unit/text.h"

using namespace vkf;
using vkf::test::contains;
using vkf::test::error_of;

namespace {

constexpr OpType kOp{"op", nullptr};

/// A node of one fresh output.
Value node(Value x, const Shape& shape, std::vector<std::size_t> stored_order = {}) {
    return x.graph().add_node(kOp, {x}, nullptr, {{DType::f32, shape, std::move(stored_order), {}}}).front();
}

}  // namespace

TEST_CASE("graph: inputs, weights and states keep what was said of them") {
    Graph g;
    const Dim tokens = g.symbol("tokens", 100);
    const Value x = g.input("x", {2, tokens, 8});
    CHECK(x.rank() == 3);
    CHECK(x.size(1) == tokens);
    CHECK(x.size(-1) == Dim(8));
    CHECK(x.dtype() == DType::f32);
    CHECK(x.str() == "x (2, tokens, 8) F32");
    CHECK(g.max_of(x.size(1) * 8 + 1) == 801);
    CHECK(g.symbol("tokens", 100) == tokens);
    CHECK(g.input("ids", {tokens}, DType::i32).dtype() == DType::i32);
    const Value w = g.weight("w", {8, 4});
    CHECK(g.weight("w", {8, 4}).id() == w.id());
    const Value cache = g.state("cache", {2, tokens, 4});
    CHECK(cache.shape() == Shape{2, 100, 4});  // laid out at its maximum
    CHECK(g.state("cache", {2, 100, 4}).id() == cache.id());
    CHECK_FALSE(Value());
    CHECK(bool(x));
}

TEST_CASE("graph: nodes record what they read, write and are called") {
    Graph g;
    const Value x = g.input("x", {4, 8});
    const Value y = node(x, {4, 8});
    REQUIRE(g.nodes().size() == 1);
    CHECK(g.nodes()[0].op == &kOp);
    CHECK(g.nodes()[0].inputs == std::vector<ValueId>{x.id()});
    CHECK(g.nodes()[0].outputs == std::vector<ValueId>{y.id()});
    CHECK(g.nodes()[0].label == "op");
    {
        const Scope outer(g, "layers.0");
        const Scope inner(g, "attn");
        CHECK(g.weight("w", {3}).str() == "layers.0.attn.w (3) F32");
        node(x, {4});
        CHECK(g.nodes().back().label == "layers.0.attn.op");
    }
    node(x, {4});
    CHECK(g.nodes().back().label == "op");
}

TEST_CASE("graph: open scopes stay open where something fails that has none") {
    Graph g;
    g.input("p", {4});
    {
        const Scope train(g, "train");
        CHECK(contains(error_of([&] { GraphEdit::state(g, "p", {4}); }), "already has an input of that name"));
        CHECK(g.scoped("w") == "train.w");
        CHECK(GraphEdit::state(g, "s", {4}).str() == "s (4) F32");
        node(g.weight("w", {4}), {4});
        const auto fail = [](Graph& inside, const std::vector<NodeInfo>&) -> std::vector<Value> {
            throw Error("no " + inside.scoped("more"));
        };
        const Scope other(g, "other");
        CHECK(error_of([&] { GraphEdit::replace(g, {0}, fail, 0); }) == "no train.more");
        CHECK(g.scoped("w") == "train.other.w");
    }
    CHECK(g.scoped("w") == "w");
}

TEST_CASE("graph: a scope that is not open cannot be closed") {
    Graph g;
    CHECK(error_of([&] { g.pop_scope(); }) == "Graph: no scope is open");
    {
        const Scope closed_by_hand(g, "a");
        g.pop_scope();
    }
    CHECK(g.scoped("w") == "w");
}

TEST_CASE("graph: a result stored in another order is a view of what is stored") {
    Graph g;
    const Value y = node(g.input("x", {1}), {2, 3, 5, 7}, {0, 2, 1, 3});
    CHECK(y.shape() == Shape{2, 3, 5, 7});
    const ValueInfo& info = g.values()[y.id()];
    CHECK(g.storages()[info.storage].shape == Shape{2, 5, 3, 7});
    CHECK(info.strides == Shape{105, 7, 21, 1});
    CHECK(is_contiguous(transpose(y, 1, 2)));
    const Value z = node(y, {2, 3, 5, 7}, {0, 2, 3, 1});
    CHECK(g.storages()[g.values()[z.id()].storage].shape == Shape{2, 5, 7, 3});
    CHECK(g.values()[z.id()].strides == Shape{105, 1, 21, 3});
}

TEST_CASE("graph: equal constants are kept once") {
    Graph g;
    const std::vector<float> data{1, 2, 3, 4};
    const std::vector<float> others{1, 2, 3, 5};
    const Value first = g.constant("table", {2, 2}, data);
    CHECK(g.constant("table", {2, 2}, data).id() == first.id());
    CHECK(g.constant("table", {4}, data).id() != first.id());
    CHECK(g.constant("table", {2, 2}, others).id() != first.id());
    CHECK(contains(error_of([&] { g.constant("table", {3}, data); }), "was given 4 elements"));
}

TEST_CASE("graph: the names of constants, which ops give, are nobody else's concern") {
    Graph g;
    const Value constant = g.constant("eps", {1}, std::vector<float>{1.0f});
    CHECK(g.input("eps", {1}).id() != constant.id());
    CHECK(g.constant("eps", {1}, std::vector<float>{1.0f}).id() == constant.id());
    CHECK(contains(error_of([&] { g.weight("eps", {1}); }), "already has an input of that name"));
}

TEST_CASE("graph: outputs are whole tensors that a node made") {
    Graph g;
    const Value x = g.input("x", {4, 8});
    const Value y = node(x, {4, 8});
    CHECK(contains(error_of([&] { g.output("y", x); }), "is already input x"));
    CHECK(contains(error_of([&] { g.output("y", transpose(y, 0, 1)); }), "is a view"));
    CHECK(contains(error_of([&] { g.output("y", slice(y, 0, 0, 2)); }), "is a view"));
    CHECK(contains(error_of([&] { g.output("x", y); }), "already has an input of that name"));
    CHECK(contains(error_of([&] { g.output("", y); }), "without a name"));
    g.output("y", reshape(y, {32}));
    CHECK(g.storages()[g.values()[y.id()].storage].kind == StorageKind::output);
    CHECK(contains(error_of([&] { g.output("z", y); }), "is already output y"));
    CHECK(contains(error_of([&] { g.input("y", {2}); }), "already has an output of that name"));
}

TEST_CASE("graph: wrong names, shapes and sizes are refused by name") {
    Graph g;
    CHECK(contains(error_of([&] { g.symbol("tokens", 0); }), "tokens"));
    CHECK(contains(error_of([&] { g.symbol("tokens", std::int64_t{1} << 33); }), "tokens"));
    const Dim tokens = g.symbol("tokens", 1 << 20);
    CHECK(contains(error_of([&] { g.symbol("tokens", 5); }), "has maximum 1048576, now 5"));
    g.input("x", {2, 3});
    CHECK(contains(error_of([&] { g.input("x", {2, 3}); }), "already has an input of that name"));
    CHECK(contains(error_of([&] { g.input("", {2, 3}); }), "without a name"));
    CHECK(contains(error_of([&] { g.symbol("", 3); }), "symbol without a name"));
    CHECK(contains(error_of([&] { g.input("deep", {1, 1, 1, 1, 1, 1}); }), "deep (1, 1, 1, 1, 1, 1) has rank 6"));
    CHECK(contains(error_of([&] { g.input("empty", {2, 0}); }), "empty (2, 0)"));
    CHECK(contains(error_of([&] { g.input("negative", {-1}); }), "negative (-1)"));
    CHECK(contains(error_of([&] { g.input("huge", {tokens, 1 << 12}); }), "huge (tokens, 4096) has more than"));
    CHECK(contains(error_of([&] { g.weight("w", {tokens}); }), "w (tokens) has a symbolic size"));
    const Shard rows{0, 8, {{0, 4}}};
    CHECK(contains(error_of([&] { g.weight("w", {4, tokens}, rows); }), "w (4, tokens) has a symbolic size"));
    g.weight("v", {2, 3});
    CHECK(contains(error_of([&] { g.weight("v", {3, 2}); }), "v is (2, 3) F32, now (3, 2) F32"));
    CHECK(contains(error_of([&] { g.weight("v", {2, 3}, DType::i32); }), "now (2, 3) I32"));
    CHECK(contains(error_of([&] { g.input("v", {2, 3}); }), "already has a weight of that name"));
    CHECK(contains(error_of([&] { Value().shape(); }), "empty Value"));
    CHECK(contains(error_of([&] { g.input("y", {2, 3}).size(2); }), "dimension 2 of y (2, 3) F32"));
}

TEST_CASE("graph: sizes that may not fit in 64 bits are refused") {
    Graph g;
    const Dim t = g.symbol("t", 4);
    const Dim huge = t * (std::int64_t{1} << 62) + 8;
    const Value x = g.input("x", {1});
    const char* const text = "a size 4611686018427387904*t+8 is too large: it may not fit in 64 bits";
    CHECK(contains(error_of([&] { g.max_of(huge); }), text));
    CHECK(contains(error_of([&] { g.input("y", {huge}); }), text));
    CHECK(contains(error_of([&] { g.state("s", {huge}); }), text));
    CHECK(contains(error_of([&] { broadcast_to(x, {huge}); }), text));
    CHECK(contains(error_of([&] { g.input("y", {16 - huge}); }), "may not fit"));  // or wraps
    CHECK(contains(error_of([&] { slice(g.input("z", {8}), 0, huge, 1); }), text));
    CHECK(contains(error_of([&] { slice(x, 0, 0, t * (std::int64_t{1} << 60)); }), "may not fit"));
    CHECK(g.max_of(t * (std::int64_t{1} << 58)) == std::int64_t{1} << 60);
}

TEST_CASE("graph: more symbols than a graph may have are refused") {
    Graph g;
    const Dim first = g.symbol("s0", 4);
    for (int i = 1; i < 4096; ++i) {
        g.symbol("s" + std::to_string(i), 4);
    }
    CHECK(g.symbol("s0", 4) == first);
    CHECK(error_of([&] { g.symbol("more", 4); }) == "Graph: symbol more: a graph has 4096 at most");
}

TEST_CASE("graph: a tensor of too many symbols is refused by name") {
    Graph g;
    Shape shape;
    for (const char* const name : {"a", "b", "c", "d", "e"}) {
        shape.push_back(g.symbol(name, 4));
    }
    CHECK(error_of([&] { g.input("x", shape); }) ==
          "Graph: x (a, b, c, d, e) has a size, or a number of elements, that is a product of more than 4 "
          "symbols");
    shape.pop_back();
    CHECK(error_of([&] { g.input("x", shape); }).empty());
}

TEST_CASE("graph: sizes made of another graph's symbols are refused") {
    Graph g, other;
    const Dim n = g.symbol("n", 8);
    other.symbol("a", 4);
    const Dim b = other.symbol("b", 4);
    CHECK(n.symbols() == 1);
    CHECK(b.symbols() == 2);
    CHECK((3 * b * n - 1).symbols() == 2);
    CHECK(Dim(7).symbols() == 0);
    CHECK(contains(error_of([&] { g.max_of(b); }), "of another graph"));
    CHECK(contains(error_of([&] { g.input("x", {n, b}); }), "of another graph"));
    CHECK(contains(error_of([&] { g.state("s", {b * n}); }), "of another graph"));
    const Value x = g.input("x", {8, 4});
    CHECK(contains(error_of([&] { slice(x, 0, b, 2); }), "of another graph"));
    CHECK(contains(error_of([&] { slice(x, 0, 0, b); }), "of another graph"));
    CHECK(contains(error_of([&] { reshape(x, {b, 8}); }), "cannot take shape"));
    CHECK(g.max_of(n + 3) == 11);
    CHECK(other.max_of(b) == 4);
}

TEST_CASE("graph: nodes take values of their own graph and write into states only") {
    Graph g;
    Graph other;
    const Value x = g.input("x", {4});
    CHECK(contains(error_of([&] {
                       g.add_node(kOp, {other.input("stranger", {4})}, nullptr, {{DType::f32, {4}, {}, {}}});
                   }),
                   "stranger (4) F32 belongs to another graph"));
    CHECK(contains(error_of([&] { g.add_node(kOp, {x}, nullptr, {{DType::f32, {}, {}, x}}); }), "only a state"));
    CHECK(contains(error_of([&] { g.output("y", other.input("z", {4})); }), "another graph"));
    const Value cache = g.state("cache", {2, 4});
    const Value window = slice(cache, 0, 1, 1);
    const Value written = g.add_node(kOp, {x}, nullptr, {{DType::f32, {}, {}, window}}).front();
    CHECK(written.shape() == Shape{1, 4});
    CHECK(g.values()[written.id()].storage == g.values()[cache.id()].storage);
    CHECK(g.values()[written.id()].offset == Dim(4));
}
