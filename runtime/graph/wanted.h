// SPDX-License-Identifier: Apache-2.0
// Which nodes of a graph are run: those that something depends on.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/edit.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace vkf {

/// Gives for each node the outputs that an output of the graph or a state depends on. A node of
/// which none is wanted is not run.
std::vector<WantedOutputs> wanted_outputs(const Graph& graph);

/// The same, kept while nodes are replaced: asking anew after each takes time that grows with the
/// square of the graph.
class Wanted {
public:
    explicit Wanted(Graph& graph);

    WantedOutputs operator[](NodeId node) const { return of_[node]; }
    /// The number of inputs of nodes that are run that are views on it.
    std::uint32_t reads(StorageId storage) const { return reads_[storage]; }
    /// Calls GraphEdit::replace(). Gives the number of new nodes, and in `first` that of the first.
    std::size_t replace(const std::vector<NodeId>& nodes, const GraphEdit::Make& make, NodeId at, NodeId& first);

private:
    StorageId storage(ValueId value) const;
    bool is_needed(StorageId storage) const;
    WantedOutputs outputs_of(NodeId node) const;
    /// Takes in a node that nothing was known of, behind whatever reads its outputs.
    void add(NodeId node);
    /// Takes off what a node reads; `unread` gets the storages that no node reads any more.
    void remove_reads(NodeId node, std::vector<StorageId>& unread);

    Graph& graph_;
    std::vector<WantedOutputs> of_;     // [node]
    std::vector<std::uint32_t> reads_;  // [storage]
};

}  // namespace vkf
