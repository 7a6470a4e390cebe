// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"

namespace vkf {

/// argmax() of rows that should be finite: ~index where the largest element is NaN or infinite.
Value argmax_of_finite(Value x);

}  // namespace vkf
