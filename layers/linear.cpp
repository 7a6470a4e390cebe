// SPDX-License-Identifier: Apache-2.0
#include "layers/linear.h"

#include "ops/checks.h"

namespace vkf {

Value linear_layer(Value x, const std::string& name, std::int64_t out, bool bias, Activation activation) {
    support::require_dtype("linear_layer", x, DType::f32);
    Graph& g = x.graph();
    const Scope scope(g, name);
    const Value weight = g.weight("weight", {out, x.size(-1)}), b = bias ? g.weight("bias", {out}) : Value();
    if (!g.linear_hook()) {
        return linear(x, weight, b, activation);
    }
    const Value described = linear(x, weight, b), y = g.linear_hook()(x, described);
    if (!y || &y.graph() != &g || y.shape() != described.shape()) {
        throw Error("what after_linear() was given made " + (y ? y.str() : std::string("nothing")) + " of " +
                        described.str() + "; it must be of the same graph and shape",
                    "linear_layer");
    }
    return activation == Activation::none ? y : activate(y, activation);
}

}  // namespace vkf
