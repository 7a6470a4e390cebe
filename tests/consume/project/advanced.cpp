// SPDX-License-Identifier: Apache-2.0
// An op of an outside project: what its author needs is under <vkformer/advanced/>.
#include <vkformer/advanced/lowering.h>
#include <vkformer/advanced/op.h>
#include <vkformer/advanced/plan.h>
#include <vkformer/vkformer.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

void lower_twice(vkf::Lowering& l) { throw vkf::Error("no device runs this as one: " + l.node().label); }

std::string declined_twice(const vkf::Capabilities&, const vkf::NodeInfo&, vkf::WantedOutputs) {
    return "it has no shader";
}

std::vector<vkf::Value> decompose_twice(vkf::Graph& g, const vkf::NodeInfo& node, vkf::WantedOutputs) {
    const vkf::Value x(g, node.inputs[0]);
    return {x + x};
}

constexpr vkf::OpType kTwice{"twice", lower_twice, declined_twice, decompose_twice};

}  // namespace

int main() {
    const vkf::Device device = vkf::Device::create();
    vkf::Graph g;
    const vkf::Value x = g.input("x", {4});
    g.output("y", g.add_node(kTwice, {x}, nullptr, {{.shape = {4}}})[0]);
    const vkf::Plan plan = vkf::make_plan(g, device.capabilities());
    vkf::Program program = device.compile(g);
    program.upload("x", std::vector<float>{1, 2, 3, 4});
    program.run();
    const bool right = plan.dispatches.size() == 1 && program.download("y") == std::vector<float>{2, 4, 6, 8};
    std::printf("an op from outside: %s\n", right ? "ran" : "wrong answer");
    return right ? 0 : 1;
}
