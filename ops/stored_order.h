// SPDX-License-Identifier: Apache-2.0
// In which order the dimensions of a view lie in memory.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/graph/graph.h"

namespace vkf::support {

/// The dimensions of a view, the outermost in memory first, where it covers `count` elements
/// densely from the storage's first on; none where it does not. Sizes of 1 come first.
std::optional<std::vector<std::size_t>> stored_order(const ValueInfo& view, const Dim& count);

/// OutputSpec::stored_order of a tensor that lies like x, where x's elements lie densely.
std::vector<std::size_t> order_like(const Value& x);

/// reshape(), of a copy where the dimensions do not lie densely.
Value reshape_or_copy(Value x, const Shape& shape);

/// `x` under the shape and the order of dimensions that undo `view`: a window on all of a tensor
/// that lies as `home` does. Empty where the view is not one.
Value undo_view(Value x, const ValueInfo& view, const ValueInfo& home);

}  // namespace vkf::support
