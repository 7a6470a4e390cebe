// SPDX-License-Identifier: Apache-2.0
// Turns what people write into what is fast: each op may say what a node of it becomes together
// with those around it (OpType::rewrite). The numbers stay what they are, bit for bit.
// For op authors: <vkformer/advanced/rewrite.h>. It may change between versions.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "../base/export.h"
#include "graph.h"
#include "op.h"

namespace vkf {

/// What stands in for a node, and for earlier ones whose work it takes over.
struct Rewrite {
    /// The nodes that go, in their order; the last is the one that was asked. Empty: nothing is
    /// rewritten.
    std::vector<NodeId> nodes = {};
    /// As Graph::replace() has it.
    std::function<std::vector<Value>(Graph&, const std::vector<NodeInfo>&)> make = {};
    std::string what = {};  ///< for explain()
};

/// A node, and what a rule may ask about those around it.
class VKF_API RewriteSite {
public:
    RewriteSite(Graph& graph, NodeId node, const std::vector<WantedOutputs>& wanted);

    Graph& graph() const noexcept { return graph_; }
    NodeId id() const noexcept { return id_; }
    const NodeInfo& node() const { return graph_.nodes()[id_]; }
    Value input(std::size_t i) const { return Value(graph_, node().inputs[i]); }

    /// The node of this op that computes input `i`, whole and laid out as it is read; `kNone` where
    /// there is none.
    NodeId maker(std::size_t i, const OpType& op) const;
    /// Empty where the maker's work can be left to this node: nothing else reads what it gives,
    /// that has no name, and nothing in between writes what it reads. Else why not.
    std::string why_not_later(NodeId maker) const;
    /// Empty where an earlier node may be computed as late as this one: nothing in between reads
    /// what it gives, or writes what it reads. Else why not.
    std::string why_not_moved(NodeId earlier) const;

    static constexpr NodeId kNone = ~NodeId{0};

private:
    bool reads(const NodeInfo& node, StorageId storage) const;

    Graph& graph_;
    NodeId id_;
    const std::vector<WantedOutputs>& wanted_;
};

/// Asks every node that is run, in order, until nothing changes. Returns a line for explain() for
/// each match, and for each near miss with its reason.
VKF_API std::vector<std::string> rewrite(Graph& graph);

}  // namespace vkf
