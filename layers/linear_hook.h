// SPDX-License-Identifier: Apache-2.0
// What Graph::after_linear() was given, for whoever describes linear layers.
#pragma once

#include "runtime/graph/graph.h"

namespace vkf {

/// True where the graph has a hook that is to be called: not within the hook itself.
bool has_linear_hook(const Graph& graph);

/// Gives what the hook, if there is one, makes of the result y of a linear layer over x. Throws
/// Error where that is not a value of the same graph and shape.
Value hooked(Value x, Value y);

}  // namespace vkf
