// SPDX-License-Identifier: Apache-2.0
// Differentiation of a part of a graph, for ops whose gradient is made of other ops'.
#pragma once

#include <vector>

#include "runtime/graph/graph.h"

namespace vkf::support {

/// A gradient that comes in at a value, and has its shape.
struct Seed {
    Value at, gradient;
};

/// gradients() of the nodes from `first` on: what nodes before it compute is not differentiated.
std::vector<Value> differentiate(Graph& graph, NodeId first, const std::vector<Seed>& seeds,
                                 const std::vector<Value>& values);

}  // namespace vkf::support
