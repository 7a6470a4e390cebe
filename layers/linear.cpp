// SPDX-License-Identifier: Apache-2.0
#include "layers/linear.h"

namespace vkf {

Value linear_layer(Value x, const std::string& name, std::int64_t out, bool bias, Activation activation) {
    Graph& g = x.graph();
    const Scope scope(g, name);
    return linear(x, g.weight("weight", {out, x.size(-1)}), bias ? g.weight("bias", {out}) : Value(), activation);
}

}  // namespace vkf
