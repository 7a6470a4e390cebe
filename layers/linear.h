// SPDX-License-Identifier: Apache-2.0
// A linear layer whose parameters are found by name.
#pragma once

#include <cstdint>
#include <string>

#include "../ops/ops.h"

namespace vkf {

/// x W^T + b with weight `name`.weight (out, in) and, if asked, `name`.bias (out), found in x's
/// graph. Graph::after_linear() has the last word before the activation. torch.nn.Linear.
VKF_API Value linear_layer(Value x, const std::string& name, std::int64_t out, bool bias = true,
                           Activation activation = Activation::none);

}  // namespace vkf
