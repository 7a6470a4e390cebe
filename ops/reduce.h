// SPDX-License-Identifier: Apache-2.0
// Of the ops that sum, what other ops need.
#pragma once

#include <vector>

#include "runtime/compile/lowering.h"

namespace vkf::support {

/// Dispatches that sum the squares of all elements of a dense tensor, for other ops.
void lower_sum_of_squares(Lowering& l, ValueId x, ValueId out);

/// Dispatches that sum a dense tensor over the dimensions that are flagged, the outermost first.
void lower_sum(Lowering& l, ValueId x, const std::vector<bool>& summed, ValueId out);

}  // namespace vkf::support
