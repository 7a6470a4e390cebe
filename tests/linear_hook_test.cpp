// SPDX-License-Identifier: Apache-2.0
// Graph::after_linear(): when what it was given is called, and where it is refused.
#include "layers/linear_hook.h"

#include <doctest/doctest.h>

#include <string>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "layers/lora.h"
#include "layers/parallel.h"
#include "models/blocks/token_embedding.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("linear hook");

TEST_CASE("linear hook: it is not called for the linear layers that it describes itself") {
    Graph g;
    const Value x = g.input("x", {2, 4});
    int calls = 0;
    const auto inner = [&](Value in, Value y) {
        ++calls;
        return y + linear_layer(in, "beside", 3, true, Activation::relu);
    };
    g.after_linear(inner);
    CHECK(linear_layer(x, "a", 3).shape() == Shape{2, 3});
    CHECK(calls == 1);
    linear_layer(x, "b", 3);
    CHECK(calls == 2);
    CHECK(has_linear_hook(g));

    g.after_linear([&](Value, Value y) {
        ++calls;
        return calls == 3 ? throw Error("no", "hook") : y;
    });
    CHECK(error_of([&] { linear_layer(x, "c", 3); }) == "hook: no");
    linear_layer(x, "d", 3);  // for which it is back
    CHECK(calls == 4);
}

TEST_CASE("linear hook: it may put another in its place, or none") {
    Graph g;
    const Value x = g.input("x", {2, 4});
    std::string called;
    g.after_linear([&](Value, Value y) {
        called += "first ";
        g.after_linear([&](Value, Value z) {
            called += "second ";
            g.after_linear({});
            return z;
        });
        linear_layer(x, "inner", 3);  // has the one that is in place now
        return y;
    });
    for (int i = 0; i < 3; ++i) {
        linear_layer(x, "a", 3);
    }
    CHECK(called == "first second ");
    CHECK(!has_linear_hook(g));
}

TEST_CASE("linear hook: what it makes of a tied last matrix is checked as of other linear layers") {
    Graph g, other;
    const Value h = g.input("h", {1, 2, 4}), foreign = other.input("foreign", {1, 2, 5});
    const TokenEmbedding table(g, "table", 5, 4);
    for (const Value& given : {Value(), foreign, h}) {
        g.after_linear([given](Value, Value) { return given; });
        CHECK(contains(error_of([&] { table.logits(h, true); }), "linear_layer: what after_linear() was given made "));
    }
    std::string name;
    g.after_linear([&](Value, Value y) {
        name = g.scoped("weight");
        return scale(y, 2.0f);
    });
    CHECK(table.logits(h, true).shape() == Shape{1, 2, 5});
    CHECK(name == "lm_head.weight");
}

TEST_CASE("linear hook: ranks, which have shares of layers, refuse it") {
    Graph g;
    g.set_rank({1, 2});
    const Value x = g.input("x", {1, 3, 8});
    const Lora lora(g, {.rank = 2, .targets = {"*"}});
    const std::size_t before = g.storages().size();
    const auto refused = [&](const auto& describe) {
        CHECK(contains(error_of(describe),
                       "parallel: what after_linear() was given, as by an adapter, cannot be "
                       "shared out over 2 ranks"));
        CHECK(g.storages().size() == before);
    };
    refused([&] { grouped_query_attention(x, {.name = "a", .heads = 2, .kv_heads = 2}); });
    refused([&] { grouped_query_attention(x, {.name = "a", .heads = 2, .kv_heads = 2, .fused_qkv = true}); });
    refused([&] { gated_feed_forward(x, 6, Activation::silu); });
    refused([&] { column_parallel_linear(x, "c", 6); });
    refused([&] { row_parallel_linear(x, "r", 8, 6); });
    const TokenEmbedding table(g, "table", 5, 8);
    refused([&] { table.logits(x, true); });
    refused([&] { table.logits(x, false); });
    g.after_linear({});
    CHECK(table.logits(x, true).size(-1) == Dim(2));
}

TEST_CASE("linear hook: a graph that has one takes no Lora, and one that a Lora has no other") {
    Graph g;
    const Value x = g.input("x", {2, 4});
    const Lora first(g, {.rank = 2, .targets = {"a"}});
    CHECK(contains(error_of([&] { Lora(g, {.rank = 1, .targets = {"b"}}); }),
                   "lora: the graph's linear layers have a hook"));
    linear_layer(x, "a", 3);
    CHECK(first.parameters().size() == 2);  // which is armed
    g.after_linear({});
    const Lora second(g, {.rank = 1, .targets = {"b"}});
    linear_layer(x, "b", 3);
    CHECK(second.parameters().size() == 2);
}
