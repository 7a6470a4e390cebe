// SPDX-License-Identifier: Apache-2.0
// What an op may ask when it is differentiated (OpType::gradient).
// For op authors: <vkformer/advanced/gradient.h>. It may change between versions.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "../runtime/graph/graph.h"
#include "../runtime/graph/node.h"

namespace vkf {

/// A node, the gradients that come in at its outputs, and which of its inputs' are asked for. Where
/// a block is computed again (recompute.h), the node is the later one of the two.
class VKF_API GradientSite {
public:
    GradientSite(Graph& graph, NodeId node, std::vector<Value> gradients, std::vector<bool> wanted)
        : graph_(graph), id_(node), gradients_(std::move(gradients)), wanted_(std::move(wanted)) {}

    Graph& graph() const noexcept { return graph_; }
    const NodeInfo& node() const { return graph_.nodes()[id_]; }
    /// The node's parameters; keep no reference to them beyond add_output().
    template <class T>
    const T& params() const {
        return *static_cast<const T*>(node().params.get());
    }
    std::size_t inputs() const { return node().inputs.size(); }
    Value input(std::size_t i) const { return Value(graph_, node().inputs[i]); }
    Value output(std::size_t i = 0) const { return Value(graph_, node().outputs[i]); }
    /// The gradient at an output, which has its shape; empty: nothing depends on the output.
    Value gradient(std::size_t i = 0) const { return gradients_[i]; }
    /// The number of outputs that the node had when its gradient was asked for.
    std::size_t incoming() const { return gradients_.size(); }
    /// True where the gradient at an input is asked for.
    bool wanted(std::size_t i) const { return wanted_[i]; }
    /// Has the node compute one more output, which its gradient needs, under these parameters.
    Value add_output(std::shared_ptr<const void> params, const OutputSpec& output) const;

private:
    Graph& graph_;
    NodeId id_;
    std::vector<Value> gradients_;
    std::vector<bool> wanted_;
};

/// The OpType::gradient of ops through which no gradient passes.
inline std::vector<Value> no_gradient(const GradientSite&) { return {}; }

}  // namespace vkf
