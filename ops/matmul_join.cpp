// SPDX-License-Identifier: Apache-2.0
// How products of one x become one: queries, keys and values of an attention layer.
#include "ops/add_op.h"
#include "ops/fours.h"
#include "ops/matmul_params.h"

namespace vkf {

namespace {

const MatmulParams& params_of(const NodeInfo& node) { return *static_cast<const MatmulParams*>(node.params.get()); }

bool is_whole_weight(const Graph& g, ValueId id) {
    const ValueInfo& v = g.values()[id];
    const StorageInfo& s = g.storages()[v.storage];
    return s.kind == StorageKind::weight && v.shape == s.shape && v.offset == Dim(0) &&
           v.strides == contiguous_strides(v.shape);
}

/// linear() with a weight of its own, and nothing in its epilogue but a bias. Its columns go by
/// fours: side by side, rows of other widths would begin at multiples of four where they did not,
/// or no longer, and kernels sum up such rows in another order.
bool is_projection(const Graph& g, const NodeInfo& node) {
    const MatmulParams& p = params_of(node);
    const Shape& columns = g.values()[node.outputs.front()].shape;
    return p.transpose_b && !p.masked_weights && !p.has_other() && p.activation == Activation::none &&
           columns.back().is_constant() && support::by_four(columns.back()) &&
           g.values()[node.inputs[1]].shape.size() == 2 && is_whole_weight(g, node.inputs[1]) &&
           (!p.bias || is_whole_weight(g, node.inputs[2]));
}

bool is_alike(const NodeInfo& a, const NodeInfo& b) {
    return params_of(a).bias == params_of(b).bias && params_of(a).scale == params_of(b).scale;
}

/// Gives input `i` of each of these nodes.
std::vector<ValueId> inputs_of(const std::vector<NodeInfo>& nodes, std::size_t i) {
    std::vector<ValueId> out;
    for (const NodeInfo& node : nodes) {
        out.push_back(node.inputs[i]);
    }
    return out;
}

/// The shape of the columns side by side.
Shape joined_shape(const Graph& g, const std::vector<NodeInfo>& nodes) {
    Shape shape = g.values()[nodes.front().outputs.front()].shape;
    shape.back() = 0;
    for (const NodeInfo& node : nodes) {
        shape.back() = shape.back() + g.values()[node.outputs.front()].shape.back();
    }
    return shape;
}

std::vector<Value> joined(Graph& g, const std::vector<NodeInfo>& nodes) {
    MatmulParams p = params_of(nodes.front());
    p.weights = nodes.size();
    std::vector<Value> inputs{Value(g, nodes.front().inputs[0])};
    for (std::size_t i = 1; i <= (p.bias ? 2 : 1); ++i) {
        for (const ValueId id : inputs_of(nodes, i)) {
            inputs.emplace_back(g, id);
        }
    }
    const Value y = support::add_op(kProjections, inputs, p, joined_shape(g, nodes));
    std::vector<Value> parts;
    Dim first;
    for (const NodeInfo& node : nodes) {
        const Dim columns = Value(g, node.outputs.front()).size(-1);
        parts.push_back(slice(y, -1, first, columns));
        first = first + columns;
    }
    return parts;
}

/// Says why a product does not join these; empty: it does.
std::string why_not(const RewriteSite& site, std::vector<NodeId> ids, NodeId later) {
    const Graph& g = site.graph();
    ids.push_back(later);
    std::vector<NodeInfo> nodes;
    for (const NodeId id : ids) {
        nodes.push_back(g.nodes()[id]);
    }
    const auto storages = [&](std::size_t input) {
        std::vector<StorageId> out;
        for (const ValueId id : inputs_of(nodes, input)) {
            out.push_back(g.values()[id].storage);
        }
        return out;
    };
    const Shape shape = joined_shape(g, nodes);
    std::string why = site.too_large(shape) ? "together they are more than one tensor may be" : "";
    std::int64_t first = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        why = why.empty() ? site.why_not_columns(ids[i], shape.back().constant(), first) : why;
        first += g.values()[nodes[i].outputs.front()].shape.back().constant();
    }
    why = why.empty() ? site.why_not_sooner(later) : why;
    why = why.empty() ? site.why_not_adjacent(storages(1)) : why;
    return why.empty() && params_of(nodes.front()).bias ? site.why_not_adjacent(storages(2)) : why;
}

}  // namespace

Rewrite join_projections(const RewriteSite& site) {
    const Graph& g = site.graph();
    if (!is_projection(g, site.node())) {
        return {};
    }
    std::vector<NodeId> ids{site.id()};
    std::string names, miss;
    for (const NodeId n : site.siblings()) {
        const NodeInfo& later = g.nodes()[n];
        if (!is_projection(g, later) || !is_alike(site.node(), later)) {
            continue;
        }
        const std::string why = why_not(site, ids, n);
        if (!why.empty()) {
            miss += (miss.empty() ? "not one launch with " : "; not one with ") + later.label + ": " + why;
            continue;
        }
        ids.push_back(n);
        names += (names.empty() ? "" : ", ") + later.label;
    }
    if (ids.size() == 1) {
        return {.what = miss};
    }
    return {.nodes = ids,
            .make = [](Graph& graph, const std::vector<NodeInfo>& old) { return joined(graph, old); },
            .what = "one launch with " + names + (miss.empty() ? "" : "; " + miss)};
}

}  // namespace vkf
