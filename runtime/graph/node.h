// SPDX-License-Identifier: Apache-2.0
// What a graph is made of beside its values: nodes, what they give, and conditions of a run.
// For op authors: <vkformer/advanced/node.h>. It may change between versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../base/export.h"
#include "value.h"

namespace vkf {

struct OpType;

struct NodeInfo {
    const OpType* op = nullptr;
    std::string label;  ///< scope and op name, for messages, traces and debug labels
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    std::shared_ptr<const void> params;  ///< the op's own struct; it names no values
    /// The outputs that are windows of states, which the node writes. Writes happen in the order of
    /// the nodes: a later node that reads the state sees them.
    std::vector<ValueId> writes = {};
    /// Nodes that compute a block again share a number that is not 0. Rewrites join none of them
    /// with other nodes: what the others computed would have to be kept.
    std::uint32_t again = 0;
};

/// Nodes first..last-1.
struct NodeRange {
    NodeId first = 0, last = 0;

    bool contains(NodeId id) const noexcept { return first <= id && id < last; }
};

/// One output of a node: a fresh tensor, or a write through an existing view of a state.
struct OutputSpec {
    DType dtype = DType::f32;
    Shape shape;
    /// Order in which the dimensions are stored, outermost first; empty = as given. {0,2,1,3}
    /// stores (B,H,L,d) as (B,L,H,d).
    std::vector<std::size_t> stored_order = {};
    /// The view through which the node writes; when it is set, dtype and shape are ignored.
    Value into = {};
};

/// `value <= limit` must hold whenever the program runs (a slice whose ends are symbolic).
struct Constraint {
    Dim value, limit;
    std::string what;
};

/// A condition on the numbers of an input, checked wherever they come from the host.
struct ContentCheck {
    StorageId storage = 0;
    std::string what;  ///< the argument it is given for
    Dim limit;
    /// Says what is wrong with the numbers; empty: nothing.
    std::string (*fault)(std::span<const std::int32_t> numbers, std::int64_t limit) = nullptr;
};

/// The largest value that the dim can have.
VKF_API std::int64_t max_of(const Dim& dim, std::span<const SymbolInfo> symbols);

}  // namespace vkf
