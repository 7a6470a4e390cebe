// SPDX-License-Identifier: Apache-2.0
// Which weights are read by one launch, and so want to lie behind each other in memory.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "../graph/graph.h"
#include "weight_layout.h"

namespace vkf {

/// The graph's weights as they best lie in memory: in the order in which the graph names them, but
/// those that one launch reads together.
std::vector<StorageId> weight_order(const Graph& graph);

/// Gives these tensors in weight_order(); behind them, as they are given, those that the graph does
/// not name.
std::vector<HostTensor> in_weight_order(std::span<const HostTensor> tensors, const Graph& graph);

/// Gives the layout that the graph's weights would have on that device, kept as the graph declares
/// them.
WeightLayout declared_layout(const Graph& graph, const Capabilities& device);

/// Says why these weights of a graph do not lie behind each other, in this order, as tensors of one
/// type; empty: they do.
std::string why_not_adjacent(const Graph& graph, const WeightLayout& layout, std::span<const StorageId> weights);

}  // namespace vkf
