// SPDX-License-Identifier: Apache-2.0
#include "ops/gradients.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ops/add_op.h"
#include "ops/assemble.h"
#include "ops/checks.h"
#include "ops/differentiate.h"
#include "ops/gradient.h"
#include "ops/stand_ins.h"
#include "ops/stored_order.h"
#include "runtime/graph/edit.h"
#include "runtime/graph/sixteen.h"

namespace vkf {

namespace {

using namespace support;

constexpr const char* kName = "gradients";

/// A walk through the nodes from the last to the first. Gradients are kept by storage, because the
/// views on it are no nodes: each use of a view adds a part, a gradient of the view's elements. In
/// a block that is computed again an op sees the node that stands in for its own, while gradients
/// stay with the storages of the block itself.
class Backward {
public:
    /// Nodes before `first` are not looked at: what they compute is a leaf.
    Backward(Graph& graph, NodeId first)
        : graph_(graph),
          first_(first),
          last_(static_cast<NodeId>(graph.nodes().size())),
          stand_ins_(graph, [this](NodeId id) { check_repeatable(id); }) {}

    void add(const Value& at, const Value& gradient) {
        const ValueInfo view = info(at.id());
        parts_[view.storage].push_back({view, gradient});
    }

    void run(const std::vector<Value>& leaves) {
        for (NodeId id = first_; id < last_; ++id) {
            for (const ValueId written : graph_.nodes()[id].writes) {
                writers_[info(written).storage].push_back(id);
            }
        }
        mark_active(leaves);
        for (NodeId id = last_; id-- > first_;) {
            if (graph_.nodes()[id].op != nullptr && on_the_way(graph_.nodes()[id])) {
                step(id);
            }
        }
    }

    Value at(const Value& leaf) {
        const ValueInfo view = info(leaf.id());
        const Value sum = total(view.storage, whole(view.storage));
        if (!sum) {
            return zeros(graph_, leaf.shape());
        }
        const ValueInfo home = whole(view.storage);
        if (view.shape == home.shape && view.strides == home.strides && view.offset == home.offset) {
            return sum;
        }
        const Value all = dense(sum);  // a seed may lie in the middle of what it is a part of
        return graph_.add_view(all, view.shape, view.strides, info(all.id()).offset + view.offset);
    }

private:
    struct Part {
        ValueInfo view;
        Value gradient;
    };

    const ValueInfo& info(ValueId id) const { return graph_.values()[id]; }

    /// All of a storage.
    ValueInfo whole(StorageId id) const {
        const Shape& shape = graph_.storages()[id].shape;
        return {id, shape, contiguous_strides(shape), Dim(0)};
    }

    bool is_active(ValueId id) const {
        const StorageId storage = info(id).storage;
        return storage < active_.size() && active_[storage];
    }

    bool on_the_way(const NodeInfo& node) const {
        return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) { return is_active(in); }) &&
               std::any_of(node.outputs.begin(), node.outputs.end(),
                           [&](ValueId out) { return parts_.contains(info(out).storage); });
    }

    /// Marks what depends on a leaf, and is a floating-point number.
    void mark_active(const std::vector<Value>& leaves) {
        active_.assign(graph_.storages().size(), false);
        for (const Value& leaf : leaves) {
            active_[info(leaf.id()).storage] = true;
        }
        for (NodeId id = first_; id < last_; ++id) {
            const NodeInfo& node = graph_.nodes()[id];
            if (node.op->gradient != no_gradient &&
                std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) { return is_active(in); })) {
                for (const ValueId out : node.outputs) {
                    const StorageId storage = info(out).storage;
                    active_[storage] = active_[storage] || is_floating(graph_.storages()[storage].dtype);
                }
            }
        }
    }

    /// What a node read must still be there when its gradient is computed.
    void check_kept(NodeId id, const NodeInfo& node) const {
        for (const ValueId in : node.inputs) {
            const auto found = writers_.find(info(in).storage);
            if (found != writers_.end() && found->second.back() > id) {
                fail(kName, node.label + " reads " + Value(graph_, in).str() + ", which " +
                                graph_.nodes()[found->second.back()].label +
                                " writes later: ask for gradients before a state is written");
            }
        }
    }

    /// What is written into a state that is differentiated would have a gradient of its own.
    void check_states(NodeId id, const NodeInfo& node) const {
        check_kept(id, node);
        for (const ValueId in : node.inputs) {
            if (writers_.contains(info(in).storage) && is_active(in)) {
                fail(kName, node.label + " reads " + Value(graph_, in).str() +
                                ": no gradient passes through a state that is written");
            }
        }
    }

    void check_repeatable(NodeId id) const {
        const NodeInfo& node = graph_.nodes()[id];
        if (!node.writes.empty()) {
            fail(kName, node.label + " writes " + Value(graph_, node.writes.front()).str() +
                            ": a block that is computed again must not, or it would be written twice");
        }
        check_kept(id, node);
    }

    void step(NodeId id) {
        const NodeInfo node = graph_.nodes()[id];  // a copy: nodes are added meanwhile
        if (node.op->gradient == no_gradient) {
            return;
        }
        if (!node.writes.empty()) {
            fail(kName, node.label + " writes " + Value(graph_, node.writes.front()).str() +
                            ": no gradient passes through a state that is written");
        }
        if (node.op->gradient == nullptr) {
            fail(kName, std::string(node.op->name) + " (" + node.label + ") has no gradient");
        }
        check_states(id, node);
        const NodeId computed = stand_ins_.of(id);
        const Scope scope(graph_, "gradient");
        const Scope same(graph_, scope_of(node));
        std::vector<Value> incoming;
        for (const ValueId out : node.outputs) {
            incoming.push_back(total(info(out).storage, info(out)));
        }
        std::vector<bool> wanted;
        for (const ValueId in : node.inputs) {
            wanted.push_back(is_active(in));
        }
        const std::vector<Value> found = node.op->gradient(GradientSite(graph_, computed, std::move(incoming), wanted));
        stand_ins_.widen_alike(id);
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (found[i] && wanted[i]) {
                const Value input(graph_, node.inputs[i]);
                require(broadcasts_to(found[i].shape(), info(node.inputs[i])), kName,
                        node.label + " gives " + found[i].str() + " as the gradient of " + input.str());
                add(input, found[i]);
            }
        }
    }

    /// True where a gradient has the shape of a view, or 1 where the view repeats one element: it
    /// is summed up there already.
    static bool broadcasts_to(const Shape& gradient, const ValueInfo& view) {
        bool fits = gradient.size() == view.shape.size();
        for (std::size_t i = 0; fits && i < gradient.size(); ++i) {
            fits = gradient[i] == view.shape[i] || (gradient[i] == Dim(1) && view.strides[i] == Dim(0));
        }
        return fits;
    }

    /// The sum of a storage's parts, laid out as `home`, a value that has all of its elements;
    /// empty where there are none.
    Value total(StorageId storage, const ValueInfo& home) {
        const auto found = parts_.find(storage);
        if (found == parts_.end()) {
            return {};
        }
        Value sum;
        std::vector<Window> windows;
        for (const Part& part : found->second) {
            ValueInfo view = part.view;
            Shape shape = view.shape;
            for (std::size_t i = 0; i < shape.size(); ++i) {
                if (view.strides[i] == Dim(0)) {  // broadcast: all copies are one element
                    shape[i] = 1;
                }
            }
            const Value gradient = sum_to(part.gradient, shape);
            view.shape = shape;
            if (const Value all = undo_view(gradient, view, home)) {
                sum = sum ? vkf::add(sum, all) : all;
            } else {
                windows.push_back({gradient, view});
            }
        }
        if (!windows.empty()) {
            const Value parts = assemble(graph_, graph_.storages()[storage].shape, windows);
            const Value seen = graph_.add_view(parts, home.shape, home.strides, home.offset);
            sum = sum ? vkf::add(sum, seen) : seen;
        }
        found->second = {{home, sum}};
        return sum;
    }

    Graph& graph_;
    NodeId first_, last_;
    StandIns stand_ins_;
    std::map<StorageId, std::vector<Part>> parts_;
    std::map<StorageId, std::vector<NodeId>> writers_;
    std::vector<bool> active_;
};

}  // namespace

Value GradientSite::add_output(std::shared_ptr<const void> params, const OutputSpec& output) const {
    return GraphEdit::widen(graph_, id_, std::move(params), output);
}

std::vector<Value> support::differentiate(Graph& graph, NodeId first, const std::vector<Seed>& seeds,
                                          const std::vector<Value>& values) {
    Backward backward(graph, first);
    for (const Seed& seed : seeds) {
        backward.add(seed.at, seed.gradient);
    }
    backward.run(values);
    std::vector<Value> out;
    for (const Value& value : values) {
        out.push_back(backward.at(value));
    }
    return out;
}

std::vector<Value> gradients(Value loss, const std::vector<Value>& values, Value seed) {
    require_dtype(kName, loss, DType::f32);
    Graph& graph = loss.graph();
    require(graph.rank().ranks == 1, kName,
            "layers that are shared out over " + std::to_string(graph.rank().ranks) +
                " ranks have none: give each rank a part of the batch instead");
    require(!graph.in_recompute(), kName, "a block that is computed again has not ended: see Recompute");
    for (const Value& value : values) {
        require(&value.graph() == &graph, kName, value.str() + " belongs to another graph than " + loss.str());
        require(is_floating(value.dtype()), kName, value.str() + " is not a floating-point number");
        const ValueInfo& info = graph.values()[value.id()];
        for (std::size_t i = 0; i < info.shape.size(); ++i) {
            require(info.shape[i] == Dim(1) || !(info.strides[i] == Dim(0)), kName,
                    value.str() + " holds an element more than once: ask for the gradient of what was broadcast");
        }
    }
    if (seed) {
        require(&seed.graph() == &graph, kName, "seed " + seed.str() + " belongs to another graph than " + loss.str());
        require_dtype(kName, seed, DType::f32);
        require(seed.shape() == loss.shape(), kName, "seed " + seed.str() + " has another shape than " + loss.str());
    } else {
        require(elements(loss.shape()) == Dim(1), kName,
                "loss " + loss.str() + " is not one number, and there is no seed");
        const float one = 1.0f;
        const std::vector<std::int64_t> shape(loss.rank(), 1);
        seed = graph.constant("one", shape, std::span<const float>(&one, 1));
    }
    return support::differentiate(graph, 0, {{loss, seed}}, values);
}

}  // namespace vkf
