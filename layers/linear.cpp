// SPDX-License-Identifier: Apache-2.0
#include "layers/linear.h"

namespace vkf {

Value linear_layer(Value x, const std::string& name, std::int64_t out, bool bias, Activation activation) {
    Graph& g = x.graph();
    const Scope scope(g, name);
    const Value weight = g.weight("weight", {out, x.size(-1)}), b = bias ? g.weight("bias", {out}) : Value();
    if (!g.linear_hook()) {
        return linear(x, weight, b, activation);
    }
    const Value y = g.linear_hook()(x, linear(x, weight, b));
    return activation == Activation::none ? y : activate(y, activation);
}

}  // namespace vkf
