// SPDX-License-Identifier: Apache-2.0
// Norms with their parameters, found by name under the scopes that are open.
#pragma once

#include <string>

#include "ops/ops.h"

namespace vkf {

/// Applies RMSNorm with `name`.weight.
Value rms_norm(Value x, const std::string& name, float eps);
/// Applies LayerNorm with `name`.weight and, if asked, `name`.bias.
Value layer_norm(Value x, const std::string& name, float eps, bool bias = true);

}  // namespace vkf
