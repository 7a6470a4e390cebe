// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/linear.h"

#include "layers/linear.h"

namespace vkf {

Value rms_norm(Value x, const std::string& name, float eps) {
    const Scope scope(x.graph(), name);
    return rms_norm(x, x.graph().weight("weight", {x.size(-1)}), eps);
}

Value layer_norm(Value x, const std::string& name, float eps) {
    Graph& g = x.graph();
    const Scope scope(g, name);
    const Value weight = g.weight("weight", {x.size(-1)});
    return layer_norm(x, weight, g.weight("bias", {x.size(-1)}), eps);
}

Value softcap(Value x, float c) { return c == 0.0f ? x : scale(activate(scale(x, 1.0f / c), Activation::tanh), c); }

Value gated_mlp(Value x, std::int64_t hidden, Activation activation, bool bias) {
    const std::int64_t width = x.size(-1).constant();
    const Value up = linear_layer(x, "up_proj", hidden, bias);
    const Value gate = linear_layer(x, "gate_proj", hidden, bias, activation);
    return linear_layer(gate * up, "down_proj", width, bias);
}

}  // namespace vkf
