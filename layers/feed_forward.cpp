// SPDX-License-Identifier: Apache-2.0
#include "layers/feed_forward.h"

#include "layers/checks.h"
#include "layers/inner_layers.h"
#include "layers/layer_scope.h"

namespace vkf {

Value feed_forward(Value x, std::int64_t hidden, Activation activation, const std::string& name, bool bias) {
    const std::int64_t width = fixed_last("feed_forward", x);
    const LayerScope scope(x.graph(), name);
    return inner_layer(x, {"linear1", "linear2"}, hidden, width, bias, activation);
}

Value gated_feed_forward(Value x, std::int64_t hidden, Activation activation, const std::string& name, bool bias) {
    const std::int64_t width = fixed_last("gated_feed_forward", x);
    const LayerScope scope(x.graph(), name);
    const Value up = to_inner(x, "up_proj", hidden, bias);
    const Value gate = to_inner(x, "gate_proj", hidden, bias, activation);
    return from_inner(gate * up, "down_proj", hidden, width, bias);
}

}  // namespace vkf
