// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/linear.h"

#include "layers/attention.h"

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

Projection::Projection(Value x, const std::string& name, std::int64_t out, bool bias)
    : x_(x), path_(x.graph().scoped(name)) {
    Graph& g = x.graph();
    const Scope scope(g, name);
    weight_ = g.weight("weight", {out, x.size(-1)});
    if (bias) {
        bias_ = g.weight("bias", {out});
    }
}

Value Projection::described(Value plus) const {
    Graph& g = x_.graph();
    // Labelled as where it was named, not as where it is added.
    const std::string open = g.scoped("");
    const Scope scope(g, path_.starts_with(open) ? path_.substr(open.size()) : path_);
    return linear(x_, weight_, bias_, Activation::none, {}, plus);
}

Projection gated_mlp(Value x, std::int64_t hidden, Activation activation, bool bias) {
    const std::int64_t width = x.size(-1).constant();
    const Value up = linear_layer(x, "up_proj", hidden, bias);
    const Value product = linear_layer(x, "gate_proj", hidden, bias, activation, up);
    return Projection(product, "down_proj", width, bias);
}

}  // namespace vkf
