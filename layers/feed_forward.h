// SPDX-License-Identifier: Apache-2.0
// The position-wise half of a Transformer layer.
#pragma once

#include <string>

#include "../ops/ops.h"

namespace vkf {

/// linear2(activation(linear1(x))): x (..., E) -> (..., E), linear1 (hidden, E), linear2 (E,
/// hidden).
VKF_API Value feed_forward(Value x, std::int64_t hidden, Activation activation, const std::string& name = {},
                           bool bias = true);

/// down_proj(activation(gate_proj x) * up_proj x): x (..., E) -> (..., E), gate_proj and up_proj
/// (hidden, E), down_proj (E, hidden). SwiGLU (Shazeer 2020) with Activation::silu.
VKF_API Value gated_feed_forward(Value x, std::int64_t hidden, Activation activation = Activation::silu,
                                 const std::string& name = {}, bool bias = false);

}  // namespace vkf
