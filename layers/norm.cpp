// SPDX-License-Identifier: Apache-2.0
#include "layers/norm.h"

#include "layers/layer_scope.h"
#include "ops/checks.h"

namespace vkf {

Value rms_norm(Value x, const std::string& name, float eps) {
    support::require_dtype("rms_norm", x, DType::f32);
    support::check_epsilon("rms_norm", eps);
    const LayerScope scope(x.graph(), name);
    return rms_norm(x, x.graph().weight("weight", {x.size(-1)}), eps);
}

Value layer_norm(Value x, const std::string& name, float eps, bool bias) {
    support::require_dtype("layer_norm", x, DType::f32);
    support::check_epsilon("layer_norm", eps);
    Graph& g = x.graph();
    const LayerScope scope(g, name);
    const Value weight = g.weight("weight", {x.size(-1)});
    return layer_norm(x, weight, bias ? g.weight("bias", {x.size(-1)}) : Value(), eps);
}

}  // namespace vkf
