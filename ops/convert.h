// SPDX-License-Identifier: Apache-2.0
// Copies that change the type, or whose type has 16 bits, for other ops.
#pragma once

#include "runtime/compile/lowering.h"

namespace vkf::support {

/// A copy that converts f32, f16 and bf16 into each other.
void lower_conversion(Lowering& l, ValueId from, ValueId to);

}  // namespace vkf::support
