// SPDX-License-Identifier: Apache-2.0
// How what follows a product becomes part of it.
#include <algorithm>

#include "ops/add_op.h"
#include "ops/matmul_choice.h"
#include "ops/matmul_params.h"

namespace vkf {

namespace {

using namespace shader;

/// (N) of (N) or (1, ..., 1, N), where a tensor is that; else an empty value.
Value as_row(Value x, const Dim& columns) {
    const Shape& shape = x.shape();
    const bool row = !shape.empty() && shape.back() == columns &&
                     std::all_of(shape.begin(), shape.end() - 1, [](const Dim& d) { return d == Dim(1); });
    return row ? reshape(x, {columns}) : Value();
}

bool lies_densely(const ValueInfo& v) { return v.strides == contiguous_strides(v.shape); }

/// True where a processor takes the product's sums in parts.
bool is_divided(const Graph& g, const NodeInfo& product) {
    const auto& p = *static_cast<const MatmulParams*>(product.params.get());
    return parts_of_sums(g.values()[product.inputs[0]], g.values()[product.inputs[1]], p,
                         [&](const Dim& d) { return g.max_of(d); }) > 1;
}

/// The product anew, with what it has and what is wished for.
std::vector<Value> with_epilogue(Graph& g, const std::vector<NodeInfo>& old, const EpilogueWish& wish, bool bias) {
    const NodeInfo& product = old.front();
    MatmulParams p = *static_cast<const MatmulParams*>(product.params.get());
    std::vector<Value> inputs;
    for (const ValueId id : product.inputs) {
        inputs.emplace_back(g, id);
    }
    const Shape shape = Value(g, product.outputs.front()).shape();
    p.divided = wish.other >= 0 && is_divided(g, product);
    if (wish.activation != Activation::none) {
        p.activation = wish.activation;
    }
    if (wish.other >= 0) {
        const Value other(g, old.back().inputs[static_cast<std::size_t>(wish.other)]);
        inputs.push_back(bias ? as_row(other, shape.back()) : other);
        if (bias) {
            p.bias = true;
        } else if (wish.gate) {
            p.other = p.bias ? kMatmulOtherGateBesideBias : kMatmulOtherGate;
        } else {
            p.other = p.bias ? kMatmulOtherResidualBesideBias : kMatmulOtherResidual;
        }
    }
    return {Value(), support::add_op(kMatmul, inputs, p, shape)};
}

/// Says why a product's epilogue has no room for the wish; empty: it has.
std::string no_room(const RewriteSite& site, const NodeInfo& product, const EpilogueWish& wish, bool bias) {
    const auto& p = *static_cast<const MatmulParams*>(product.params.get());
    if (p.masked_weights) {
        return "it multiplies masked weights";
    }
    if (p.has_other()) {
        return std::string("it has a ") + (p.is_gate() ? "gate" : "residual") + " already";
    }
    if (wish.activation != Activation::none && p.activation != Activation::none) {
        return "it has an activation already";
    }
    const Graph& g = site.graph();
    if (site.too_large(g.values()[product.inputs[1]].shape) && is_summed_in_parts(g.values()[product.inputs[1]], p)) {
        return "its matrix is larger than a storage buffer, and its sums are taken in parts";
    }
    if ((wish.activation != Activation::none || wish.gate || bias) && is_divided(g, product)) {
        return "a processor takes its sums in parts";
    }
    const ValueInfo& y = g.values()[product.outputs.front()];
    if (!lies_densely(y)) {
        return "its result is stored in another order";
    }
    if (wish.other >= 0) {
        const ValueInfo& other = g.values()[site.node().inputs[static_cast<std::size_t>(wish.other)]];
        if (other.storage == y.storage) {
            return "the other operand is the product itself";
        }
    }
    if (wish.other >= 0 && !bias) {
        const ValueInfo& other = g.values()[site.node().inputs[static_cast<std::size_t>(wish.other)]];
        if (!(other.shape == y.shape) || !lies_densely(other)) {
            return "the other operand is broadcast, or not stored as the result is";
        }
    }
    return {};
}

}  // namespace

Rewrite into_epilogue(const RewriteSite& site, const EpilogueWish& wish) {
    const NodeId maker = site.maker(wish.product, kMatmul);
    if (maker == RewriteSite::kNone || site.node().outputs.size() != 1) {
        return {};
    }
    const NodeInfo& product = site.graph().nodes()[maker];
    const auto& p = *static_cast<const MatmulParams*>(product.params.get());
    const Shape& shape = site.graph().values()[product.outputs.front()].shape;
    if (!(site.graph().values()[site.node().outputs.front()].shape == shape)) {
        return {};  // the product is what is broadcast
    }
    const Value other = wish.other < 0 ? Value() : site.input(static_cast<std::size_t>(wish.other));
    const bool bias = other && !wish.gate && !p.bias && p.activation == Activation::none &&
                      wish.activation == Activation::none && !p.has_other() && as_row(other, shape.back());
    std::string why = bias && p.scale != 1.0f ? "what is scaled is rounded before a bias" : "";
    why = why.empty() ? no_room(site, product, wish, bias) : why;
    why = why.empty() ? site.why_not_later(maker) : why;
    if (!why.empty()) {
        return {.what = "not in the epilogue of " + product.label + ": " + why};
    }
    return {
        .nodes = {maker, site.id()},
        .make = [wish, bias](Graph& g, const std::vector<NodeInfo>& old) { return with_epilogue(g, old, wish, bias); },
        .what = std::string("in the epilogue of ") + product.label +
                (bias    ? ", as its bias"
                 : other ? wish.gate ? ", as its gate" : ", as its residual"
                         : ", as its activation")};
}

}  // namespace vkf
