// SPDX-License-Identifier: Apache-2.0
// Which nodes a program runs: those that something depends on, and what stands in for those that its device declines.
#pragma once

#include <string>
#include <vector>

#include "../graph/graph.h"
#include "../graph/op.h"
#include "capabilities.h"

namespace vkf {

/// For each node the outputs that an output of the graph or a state depends on; none: the node is not run.
VKF_API std::vector<WantedOutputs> wanted_outputs(const Graph& graph);

/// Replaces every node that the device declines by what it is made of, again and again until none is left. Returns a line for
/// explain() for each kind of replacement.
VKF_API std::vector<std::string> decompose_declined(Graph& graph, const Capabilities& device);

}  // namespace vkf
