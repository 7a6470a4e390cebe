// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime/graph/edit.h"

namespace vkf {

/// A layer's scope. Where the layer is refused, nothing of it is left in the graph: no weights, and
/// no nodes that write a cache.
class LayerScope {
public:
    LayerScope(Graph& graph, const std::string& name) : addition_(graph), scope_(graph, name) {}

private:
    GraphEdit::Addition addition_;
    Scope scope_;
};

}  // namespace vkf
