// SPDX-License-Identifier: Apache-2.0
// What stands in for nodes that a device declines.
#pragma once

#include <string>
#include <vector>

#include "../graph/graph.h"
#include "../graph/op.h"
#include "capabilities.h"

namespace vkf {

/// Replaces every node that the device declines by what it is made of, again and again until none
/// is left. Returns a line for explain() for each kind of replacement.
std::vector<std::string> decompose_declined(Graph& graph, const Capabilities& device);

}  // namespace vkf
