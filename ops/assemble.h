// SPDX-License-Identifier: Apache-2.0
// A tensor made of the parts that views of it had.
#pragma once

#include <vector>

#include "runtime/graph/graph.h"

namespace vkf::support {

/// What is added where: `view` is a window on a tensor, and has the shape of `part`.
struct Window {
    Value part;
    ValueInfo view;
};

/// A tensor of that shape: 0, and every part added, in their order, where its window is. Windows
/// may overlap each other, but hold no element twice.
Value assemble(Graph& graph, const Shape& shape, const std::vector<Window>& windows);

/// A tensor of zeros.
Value zeros(Graph& graph, const Shape& shape);

}  // namespace vkf::support
