// SPDX-License-Identifier: Apache-2.0
// Turns what people write into what is fast: each op may say what a node of it becomes together
// with those around it (OpType::rewrite). The numbers stay what they are, bit for bit; only joined
// products may divide long sums otherwise on GPUs.
// For op authors: <vkformer/advanced/rewrite.h>. It may change between versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "../base/export.h"
#include "graph.h"
#include "node.h"
#include "op.h"

namespace vkf {

class Wanted;

/// The replacement of a node, and of others whose work it takes over.
struct Rewrite {
    /// The nodes that are replaced, in graph order. The node that was asked is one of them: the
    /// last for OpType::rewrite, the first for OpType::join. The new nodes take its place. Empty:
    /// nothing is rewritten.
    std::vector<NodeId> nodes = {};
    /// Adds the new nodes. It is given the graph and the old nodes, and returns, in order, what
    /// each output of the old nodes becomes: a value of the same shape and layout, or columns of
    /// wider rows, which the new nodes compute whole; or an empty value where nothing reads the
    /// output.
    std::function<std::vector<Value>(Graph&, const std::vector<NodeInfo>&)> make = {};
    std::string what = {};  ///< text for explain()
};

/// The limits of the device on which a graph will run.
struct RewriteLimits {
    /// Says why several weights cannot be read as one that has the rows of them all; empty, or no
    /// function: they can.
    std::function<std::string(std::span<const StorageId> weights)> why_not_adjacent = {};
    /// Most elements that a tensor may have.
    std::uint64_t elements = 0xffffffff;
};

/// A node, and what a rule may ask about the nodes around it.
class VKF_API RewriteSite {
public:
    RewriteSite(Graph& graph, NodeId node, const Wanted& wanted, const RewriteLimits& limits);

    Graph& graph() const noexcept { return graph_; }
    NodeId id() const noexcept { return id_; }
    const NodeInfo& node() const { return graph_.nodes()[id_]; }
    Value input(std::size_t i) const { return Value(graph_, node().inputs[i]); }

    /// The node of this op that computes input `i`, whole and laid out as it is read; `kNone` where
    /// there is none.
    NodeId maker(std::size_t i, const OpType& op) const;
    /// The node that computes what input `i` is a view on; `kNone` where there is none.
    NodeId writer(std::size_t i) const;
    /// Empty where this node can do the maker's work: nothing else reads the maker's output, the
    /// output has no name, and nothing in between writes what the maker reads. Else the reason why
    /// not.
    std::string why_not_later(NodeId maker) const;
    /// Empty where an earlier node may be computed as late as this one: nothing in between reads
    /// its outputs or writes what it reads. Else the reason why not.
    std::string why_not_moved(NodeId earlier) const;

    /// The later nodes of the same op that read the same view as their first input. The search ends
    /// where the outputs of two of them meet: from there on it is another part of the model. Nodes
    /// that compute others again are in a search of their own.
    std::vector<NodeId> siblings() const;
    /// Empty where a later node that reads nothing computed in between may be computed as early as
    /// this one: nothing in between writes what it reads. Else the reason why not.
    std::string why_not_sooner(NodeId later) const;
    /// Empty where a node's output may become the columns from `first` on of rows of `pitch`: the
    /// output has no name, and all nodes that read it can read rows that lie so, with the same
    /// bits. Else the reason why not.
    std::string why_not_columns(NodeId node, std::int64_t pitch, std::int64_t first) const;
    /// Asks RewriteLimits::why_not_adjacent of these weights.
    std::string why_not_adjacent(std::span<const StorageId> weights) const;
    /// True where a tensor of that shape has more elements than one may have.
    bool too_large(const Shape& shape) const;

    static constexpr NodeId kNone = ~NodeId{0};

private:
    /// How many inputs of earlier nodes that are run are views on it.
    std::uint32_t reads_before(StorageId storage) const;

    Graph& graph_;
    NodeId id_;
    const Wanted& wanted_;
    const RewriteLimits& limits_;
};

/// Goes once through the nodes that are run, in order, and asks each for a rewrite; where it finds
/// one, it goes on with the first of the new nodes. Then it goes through them again and asks for
/// joins likewise. Returns a line for explain() for each match, and for each near miss with its
/// reason.
VKF_API std::vector<std::string> rewrite(Graph& graph, const RewriteLimits& limits = {});

}  // namespace vkf
