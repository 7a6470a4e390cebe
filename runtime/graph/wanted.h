// SPDX-License-Identifier: Apache-2.0
// Which nodes of a graph are run: those that something depends on.
#pragma once

#include <vector>

#include "graph.h"
#include "op.h"

namespace vkf {

/// Gives for each node the outputs that an output of the graph or a state depends on. A node of
/// which none is wanted is not run.
std::vector<WantedOutputs> wanted_outputs(const Graph& graph);

}  // namespace vkf
