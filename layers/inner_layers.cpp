// SPDX-License-Identifier: Apache-2.0
#include "layers/inner_layers.h"

#include "layers/linear.h"
#include "layers/sharing.h"

namespace vkf {

Value to_inner(Value x, const std::string& name, std::int64_t hidden, bool bias, Activation activation) {
    const Graph& g = x.graph();
    return is_whole(g) ? linear_layer(x, name, hidden, bias, activation)
                       : linear_rows(x, name, {0, hidden, {share_of_width(hidden, g.rank())}}, bias, activation);
}

Value from_inner(Value inner, const std::string& name, std::int64_t hidden, std::int64_t width, bool bias) {
    const Graph& g = inner.graph();
    return is_whole(g) ? linear_layer(inner, name, width, bias)
                       : linear_columns(inner, name, {1, hidden, {share_of_width(hidden, g.rank())}}, width, bias);
}

Value inner_layer(Value x, const InnerNames& names, std::int64_t hidden, std::int64_t width, bool bias,
                  Activation activation) {
    return from_inner(to_inner(x, names.up, hidden, bias, activation), names.down, hidden, width, bias);
}

Value gated_inner_layer(Value x, const InnerNames& names, std::int64_t hidden, std::int64_t width,
                        Activation activation) {
    const Graph& g = x.graph();
    Part own{0, hidden};
    Value both;
    if (is_whole(g)) {
        both = linear_layer(x, names.up, 2 * hidden, false);
    } else {
        own = share_of_width(hidden, g.rank());
        both = linear_rows(x, names.up, {0, 2 * hidden, {own, {hidden + own.first, own.count}}}, false);
    }
    const Value gate = slice(both, -1, 0, own.count), up = slice(both, -1, own.count, own.count);
    return from_inner(gated(gate, up, activation), names.down, hidden, width, false);
}

}  // namespace vkf
