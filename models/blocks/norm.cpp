// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/norm.h"

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

}  // namespace vkf
