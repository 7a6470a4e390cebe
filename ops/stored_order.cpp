// SPDX-License-Identifier: Apache-2.0
#include "ops/stored_order.h"

#include <algorithm>

#include "ops/ops.h"
#include "runtime/graph/info_of.h"

namespace vkf::support {

namespace {

/// The order that undoes an order of dimensions.
std::vector<std::size_t> inverse(const std::vector<std::size_t>& order) {
    std::vector<std::size_t> out(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        out[order[i]] = i;
    }
    return out;
}

}  // namespace

std::optional<std::vector<std::size_t>> stored_order(const ValueInfo& view, const Dim& count) {
    std::vector<std::size_t> order;
    std::vector<bool> taken(view.shape.size(), false);
    Dim stride = 1;
    for (bool found = true; found;) {  // from the innermost
        found = false;
        for (std::size_t i = view.shape.size(); i-- > 0 && !found;) {
            if (!taken[i] && !(view.shape[i] == Dim(1)) && view.strides[i] == stride) {
                taken[i] = found = true;
                order.push_back(i);
                stride = stride * view.shape[i];
            }
        }
    }
    for (std::size_t i = view.shape.size(); i-- > 0;) {
        if (!taken[i]) {
            if (!(view.shape[i] == Dim(1))) {
                return std::nullopt;
            }
            order.push_back(i);
        }
    }
    if (!(stride == count)) {
        return std::nullopt;
    }
    std::reverse(order.begin(), order.end());
    return order;
}

std::vector<std::size_t> order_like(const Value& x) {
    const std::vector<std::size_t> as_counted;
    return is_contiguous(x) ? as_counted : stored_order(info_of(x), elements(x.shape())).value_or(as_counted);
}

Value reshape_or_copy(Value x, const Shape& shape) {
    // A view, where there is one: what reshape() refuses is copied first.
    try {
        return reshape(x, shape);
    } catch (const Error&) {
        return reshape(contiguous(x), shape);
    }
}

Value undo_view(Value x, const ValueInfo& view, const ValueInfo& home) {
    const Dim count = elements(home.shape);
    const auto order = stored_order(view, count);
    const auto home_order = stored_order(home, count);
    if (!order || !home_order || !(view.offset == home.offset)) {
        return {};
    }
    Shape as_stored;
    for (const std::size_t i : *home_order) {
        as_stored.push_back(home.shape[i]);
    }
    return permute(reshape_or_copy(permute(x, *order), as_stored), inverse(*home_order));
}

}  // namespace vkf::support
