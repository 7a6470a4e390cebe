// SPDX-License-Identifier: Apache-2.0
#include "layers/linear.h"

#include "layers/layer_scope.h"
#include "layers/linear_hook.h"
#include "ops/checks.h"

namespace vkf {

Value linear_layer(Value x, const std::string& name, std::int64_t out, bool bias, Activation activation) {
    support::require_dtype("linear_layer", x, DType::f32);
    Graph& g = x.graph();
    const LayerScope scope(g, name);
    const Value weight = g.weight("weight", {out, x.size(-1)}), b = bias ? g.weight("bias", {out}) : Value();
    if (!has_linear_hook(g)) {
        return linear(x, weight, b, activation);
    }
    const Value y = hooked(x, linear(x, weight, b));
    return activation == Activation::none ? y : activate(y, activation);
}

}  // namespace vkf
