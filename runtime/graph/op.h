// SPDX-License-Identifier: Apache-2.0
// What an op is to the runtime: a name, and the functions that the runtime calls. The runtime knows
// no op by name.
// For op authors: <vkformer/advanced/op.h>. It may change between versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vkf {

class GradientSite;
class Graph;
class Lowering;
class Value;
struct Capabilities;
struct NodeInfo;
struct Rewrite;
class RewriteSite;
struct ValueInfo;

/// Bit i is set where something depends on a node's output i.
using WantedOutputs = std::uint32_t;

struct OpType {
    const char* name;
    /// Emits the node's dispatches.
    void (*lower)(Lowering&);
    /// Returns an empty text when the device should run the node as one op, else the reason why
    /// not. Null: every device should.
    std::string (*declined)(const Capabilities& device, const NodeInfo& node, WantedOutputs wanted) = nullptr;
    /// Adds the nodes that take the node's place where a device declines it, and returns a value
    /// for each output, as Rewrite::make does.
    std::vector<Value> (*decompose)(Graph& graph, const NodeInfo& node, WantedOutputs wanted) = nullptr;
    /// Says what the node becomes together with those around it (rewrite.h): the same numbers,
    /// computed faster. Null: nothing.
    Rewrite (*rewrite)(const RewriteSite& site) = nullptr;
    /// Says what the node becomes together with later ones like it, once nothing else is left to
    /// rewrite. Null: nothing.
    Rewrite (*join)(const RewriteSite& site) = nullptr;
    /// Says whether the node can read `moved` in place of `view` as its input `i`, and computes the
    /// same bits then. Rows of both begin at multiples of four, or of both not. A rewrite asks this
    /// before it changes the layout of what other nodes read. Null: it reads only views whose
    /// elements lie densely.
    bool (*can_read)(const NodeInfo& node, std::size_t i, const ValueInfo& view, const ValueInfo& moved) = nullptr;
    /// Adds the nodes that compute the gradients at the node's inputs from those at its outputs
    /// (ops/gradient.h), and returns them in the order of the inputs; an empty value, or none,
    /// where no gradient passes. Null: asking for one is an error.
    std::vector<Value> (*gradient)(const GradientSite& site) = nullptr;
    /// True if the node's one output can be written through any view, such as a window of a state.
    bool writes_views = false;
};

}  // namespace vkf
