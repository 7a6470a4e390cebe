// SPDX-License-Identifier: Apache-2.0
// Of softmax and its kin, what other ops need.
#pragma once

#include "runtime/graph/graph.h"

namespace vkf::support {

/// (...,) of (..., V): log-sum-exp less `smoothing` times the mean of each row.
Value smoothed_log_sum_exp(Value scores, float smoothing);

}  // namespace vkf::support
