// SPDX-License-Identifier: Apache-2.0
// Which nodes are run, kept while nodes are replaced.
#include "runtime/graph/wanted.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/ops.h"
#include "runtime/graph/node.h"

namespace vkf::test {

namespace {

std::string mismatch(const Graph& g, const Wanted& kept) {
    const std::vector<WantedOutputs> anew = wanted_outputs(g);
    for (NodeId n = 0; n < anew.size(); ++n) {
        if (kept[n] != anew[n]) {
            return g.nodes()[n].label + ": " + std::to_string(kept[n]) + ", anew " + std::to_string(anew[n]);
        }
    }
    return {};
}

}  // namespace

TEST_SUITE_BEGIN("rewrite");

TEST_CASE("rewrite: what nodes are run is the same kept and asked for anew") {
    Graph g;
    const Value x = g.input("x", {4, 8}), y = g.input("y", {4, 8});
    const Value a = activate(x, Activation::relu);             // node 0
    const Value b = activate(a, Activation::tanh);             // 1
    const Value c = mul(b, y);                                 // 2
    const Value unused = activate(c, Activation::relu);        // 3
    const Value d = add(c, activate(a, Activation::sigmoid));  // 4 and 5
    g.output("d", d);
    (void)unused;
    Wanted wanted(g);
    CHECK(mismatch(g, wanted) == "");
    CHECK(wanted[3] == 0);
    CHECK(wanted.reads(a.graph().values()[a.id()].storage) == 2);

    NodeId first = 0;
    // two nodes in the place of one
    std::size_t added = wanted.replace(
        {2},
        [&](Graph&, const std::vector<NodeInfo>&) { return std::vector<Value>{mul(activate(b, Activation::relu), y)}; },
        2, first);
    CHECK(added == 2);
    CHECK(first == 2);
    CHECK(g.nodes().size() == 7);
    CHECK(mismatch(g, wanted) == "");

    // one in the place of two that is of neither: what made b is not run any more
    added = wanted.replace(
        {2, 3},
        [&](Graph&, const std::vector<NodeInfo>&) {
            return std::vector<Value>{{}, add(x, y)};
        },
        3, first);
    CHECK(added == 1);
    CHECK(first == 2);
    CHECK(mismatch(g, wanted) == "");
    CHECK(wanted[1] == 0);  // b
    CHECK(wanted[0] != 0);  // a, which the sigmoid reads

    // the sigmoid's turn: now a is read by nobody
    NodeId sigmoid = 0;
    while (g.nodes()[sigmoid].inputs.front() != a.id() || wanted[sigmoid] == 0) {
        ++sigmoid;
    }
    wanted.replace(
        {sigmoid},
        [&](Graph&, const std::vector<NodeInfo>&) { return std::vector<Value>{activate(y, Activation::tanh)}; },
        sigmoid, first);
    CHECK(mismatch(g, wanted) == "");
    CHECK(wanted[0] == 0);
}

TEST_CASE("rewrite: a node that is left without readers takes with it what only it reads of the new ones") {
    Graph g;
    const Value x = g.input("x", {4, 8});
    const Value a = activate(x, Activation::relu);
    g.output("b", activate(activate(a, Activation::tanh), Activation::sigmoid));
    Wanted wanted(g);
    NodeId first = 0;
    const std::size_t added = wanted.replace(
        {0, 2},
        [&](Graph&, const std::vector<NodeInfo>&) {
            return std::vector<Value>{activate(x, Activation::tanh), activate(x, Activation::relu)};
        },
        0, first);
    CHECK(added == 2);
    CHECK(first == 0);
    CHECK(mismatch(g, wanted) == "");
    CHECK(wanted[0] == 0);
    CHECK(wanted[1] != 0);
    CHECK(wanted[2] == 0);
}

TEST_SUITE_END();

}  // namespace vkf::test
