// SPDX-License-Identifier: Apache-2.0
#include "layers/feed_forward.h"

#include "layers/checks.h"
#include "layers/linear.h"

namespace vkf {

Value feed_forward(Value x, std::int64_t hidden, Activation activation, const std::string& name, bool bias) {
    const std::int64_t width = fixed_last("feed_forward", x);
    const Scope scope(x.graph(), name);
    const Value inner = linear_layer(x, "linear1", hidden, bias, activation);
    return linear_layer(inner, "linear2", width, bias);
}

Value gated_feed_forward(Value x, std::int64_t hidden, Activation activation, const std::string& name, bool bias) {
    const std::int64_t width = fixed_last("gated_feed_forward", x);
    const Scope scope(x.graph(), name);
    const Value up = linear_layer(x, "up_proj", hidden, bias);
    const Value gate = linear_layer(x, "gate_proj", hidden, bias, activation);
    return linear_layer(gate * up, "down_proj", width, bias);
}

}  // namespace vkf
