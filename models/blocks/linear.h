// SPDX-License-Identifier: Apache-2.0
// Norms and projections with their parameters, found by name under the scopes that are open.
#pragma once

#include <string>

#include "ops/ops.h"

namespace vkf {

/// RMSNorm with `name`.weight.
Value rms_norm(Value x, const std::string& name, float eps);
/// LayerNorm with `name`.weight and `name`.bias.
Value layer_norm(Value x, const std::string& name, float eps);

/// c tanh(x / c); c = 0: x.
Value softcap(Value x, float c);

/// down_proj(activation(gate_proj x) * up_proj x), of `hidden` columns between: SwiGLU (Shazeer
/// 2020) with Activation::silu.
Value gated_mlp(Value x, std::int64_t hidden, Activation activation, bool bias = false);

}  // namespace vkf
