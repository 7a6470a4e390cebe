// SPDX-License-Identifier: Apache-2.0
// Of softmax and its kin, what other ops need.
#pragma once

#include "ops/ops.h"

namespace vkf::support {

/// (..., 2) of (..., V): of the log-sum-exp S + rest of each row the S, and what
/// (1 - smoothing) rest + smoothing (S + rest - mean) is. No gradient.
Value smoothed_log_sum_exp(Value scores, float smoothing);

/// (..., 2) of (..., V): the log-sum-exp of each row, and what rounding took off it. No gradient.
Value log_sum_exp_parts(Value scores, const SoftmaxOptions& options);

}  // namespace vkf::support
