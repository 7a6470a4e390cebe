// SPDX-License-Identifier: Apache-2.0
// The gradient of scaled_dot_product_attention(): one op, as attention is.
#include "ops/attention_gradient.h"

#include <algorithm>
#include <cmath>

#include "ops/add_op.h"
#include "ops/assemble.h"
#include "ops/checks.h"
#include "ops/differentiate.h"
#include "ops/elementwise.h"
#include "ops/stored_order.h"
#include "runtime/compile/lowering.h"
#include "runtime/graph/info_of.h"

namespace vkf {

namespace {

using namespace support;

constexpr const char* kName = "attention_gradient";

/// A value of its own for each input that is differentiated: those that share a tensor, or are a
/// part of one, are copied.
std::vector<Value> leaves(Graph& graph, const NodeInfo& node, const AttentionGradientParams& p) {
    std::vector<Value> inputs;
    for (std::size_t i = 0; i < p.inputs; ++i) {
        inputs.emplace_back(graph, node.inputs[i]);
    }
    for (const std::size_t i : p.wanted) {
        const ValueInfo view = info_of(inputs[i]);
        const bool shared = std::any_of(inputs.begin(), inputs.end(), [&](const Value& other) {
            return other.id() != inputs[i].id() && info_of(other).storage == view.storage;
        });
        const bool twice = std::count_if(inputs.begin(), inputs.end(),
                                         [&](const Value& other) { return other.id() == inputs[i].id(); }) > 1;
        const bool whole = view.offset == Dim(0) && stored_order(view, elements(graph.storages()[view.storage].shape));
        if (shared || twice || !whole) {
            inputs[i] = contiguous(inputs[i]);
        }
    }
    return inputs;
}

/// `x` as the op's output is laid out.
Value laid_out_as(const Value& x, const ValueInfo& output) {
    const ValueInfo& have = info_of(x);
    bool alike = have.offset == output.offset;
    for (std::size_t i = 0; i < have.shape.size(); ++i) {
        alike = alike && (have.shape[i] == Dim(1) || have.strides[i] == output.strides[i]);
    }
    const StorageInfo& storage = x.graph().storages()[have.storage];
    alike = alike && storage.kind == StorageKind::intermediate && elements(storage.shape) == elements(have.shape);
    return alike ? x : copy_in_order(x, stored_order(output, elements(output.shape)).value());
}

/// The composed attention once more, and the gradients of the ops it is made of.
std::vector<Value> decompose(Graph& graph, const NodeInfo& node, WantedOutputs) {
    AttentionGradientParams p = *static_cast<const AttentionGradientParams*>(node.params.get());
    p.attention.log_sum_exp_parts = -1;
    const std::vector<Value> inputs = leaves(graph, node, p);
    const auto first = static_cast<NodeId>(graph.nodes().size());
    NodeInfo attention = node;
    attention.params = std::make_shared<const AttentionParams>(p.attention);
    attention.inputs.clear();
    for (const Value& input : inputs) {
        attention.inputs.push_back(input.id());
    }
    const std::vector<Value> outputs = decompose_attention(graph, attention, ~WantedOutputs{0});
    std::size_t next = p.inputs + 2;  // behind y and the log-sum-exp
    const auto seed = [&](int at) {
        return Seed{outputs[static_cast<std::size_t>(at)], Value(graph, node.inputs[next++])};
    };
    std::vector<Seed> seeds{seed(0)};
    if (p.weights) {
        seeds.push_back(seed(p.attention.weights));
    }
    if (p.log_sum_exp) {
        seeds.push_back(seed(p.attention.log_sum_exp));
    }
    std::vector<Value> of;
    for (const std::size_t i : p.wanted) {
        of.push_back(inputs[i]);
    }
    std::vector<Value> out = differentiate(graph, first, seeds, of);
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = laid_out_as(out[i], graph.values()[node.outputs[i]]);
    }
    return out;
}

std::string declined(const Capabilities& device, const NodeInfo& node, WantedOutputs) {
    const auto& p = *static_cast<const AttentionGradientParams*>(node.params.get());
    std::string why = declined_gradient(device, p);
    require(why.empty() || p.attention.composable, kName,
            "2^32 scores or more are too many to be composed of other ops, and as one it is not computed: " + why);
    return why;
}

/// A gradient lies as its input does; but the rows of those of queries, keys and values are written
/// as rows.
std::vector<std::size_t> order_for(std::size_t input, const Value& x) {
    std::vector<std::size_t> order = order_like(x);
    const bool in_rows = order.empty() || order.back() + 1 == order.size();
    return input > 2 || in_rows ? order : std::vector<std::size_t>();
}

constexpr OpType kAttentionGradient{
    .name = kName, .lower = lower_gradient, .declined = declined, .decompose = decompose, .can_read = can_read_any};

}  // namespace

std::vector<Value> attention_gradient(const GradientSite& site) {
    AttentionParams p = site.params<AttentionParams>();
    const auto refuse_if = [&](bool condition, const char* what) {
        require(!condition, site.node().op->name, std::string("no gradient passes through ") + what);
    };
    refuse_if(p.score_mod ? true : false, "a score_mod");
    refuse_if(p.pages >= 0, "pages");
    refuse_if(p.ring.has_value(), "a ring");
    refuse_if(p.kv_type != WeightType::f32, "packed keys and values");
    refuse_if(p.slopes >= 0 && p.key_numbers >= 0, "alibi_slopes of sequences with lengths of their own");
    refuse_if(p.slopes >= 0 && site.wanted(static_cast<std::size_t>(p.slopes)), "alibi_slopes");

    Value parts;
    if (p.log_sum_exp_parts >= 0) {
        parts = site.output(static_cast<std::size_t>(p.log_sum_exp_parts));
    } else {
        p.log_sum_exp_parts = static_cast<int>(site.node().outputs.size());
        p.full = true;
        const Shape& y = site.output().shape();
        parts = site.add_output(params(p), {DType::f32, {y[0], y[1], y[2], Dim(2)}, {}, {}});
    }
    AttentionGradientParams g{.attention = p, .inputs = site.inputs()};
    std::vector<Value> inputs;
    for (std::size_t i = 0; i < site.inputs(); ++i) {
        inputs.push_back(site.input(i));
    }
    inputs.push_back(site.output());
    inputs.push_back(parts);
    inputs.push_back(site.gradient() ? site.gradient() : zeros(site.graph(), site.output().shape()));
    const auto incoming = [&](int at) {
        return at < 0 || static_cast<std::size_t>(at) >= site.incoming() ? Value()
                                                                         : site.gradient(static_cast<std::size_t>(at));
    };
    for (const auto& [at, flag] : {std::pair{p.weights, &g.weights}, std::pair{p.log_sum_exp, &g.log_sum_exp}}) {
        if (const Value dy = incoming(at)) {
            inputs.push_back(dy);
            *flag = true;
        }
    }
    std::vector<OutputSpec> outputs;
    for (std::size_t i = 0; i < site.inputs(); ++i) {
        if (site.wanted(i)) {
            g.wanted.push_back(i);
            outputs.push_back({DType::f32, site.input(i).shape(), order_for(i, site.input(i)), {}});
        }
    }
    const std::vector<std::size_t> wanted = g.wanted;
    const std::vector<Value> made = site.graph().add_node(kAttentionGradient, inputs, params(std::move(g)), outputs);
    std::vector<Value> out(site.inputs());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        out[wanted[i]] = made[i];
    }
    return out;
}

}  // namespace vkf
