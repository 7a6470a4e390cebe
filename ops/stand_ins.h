// SPDX-License-Identifier: Apache-2.0
// The nodes that compute the blocks of a graph again (recompute.h), for the walk backwards.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/node.h"

namespace vkf::support {

/// Adds the nodes of a block once more when the walk comes to it. What they read of the same block,
/// and of those around it, they read of what stands in there.
class StandIns {
public:
    /// `check` throws where a node cannot be computed again.
    StandIns(Graph& graph, std::function<void(NodeId)> check) : graph_(graph), check_(std::move(check)) {}

    /// The node that computes `id` again; `id` itself where it is in no block. From call to call
    /// the nodes come earlier.
    NodeId of(NodeId id);
    /// Gives `id`, and whatever computes it again by now, what of(id) was given: its parameters,
    /// and an output more for each that it has more. So one kernel computes them all, with the same
    /// bits.
    void widen_alike(NodeId id);

private:
    /// A block, and the nodes that stand in for its own, in their order.
    struct Block {
        NodeRange nodes;
        NodeId first;
        std::map<StorageId, Value> homes = {};   // by the storage in whose place they are
        std::map<ValueId, ValueId> values = {};  // likewise
    };

    void repeat(const NodeRange& nodes);
    ValueId of_value(ValueId id);

    Graph& graph_;
    std::function<void(NodeId)> check_;
    std::vector<Block> open_;  // around the node at hand, the outermost first
};

}  // namespace vkf::support
