// SPDX-License-Identifier: Apache-2.0
// What compilation does to a copy of a graph, differentiation to a graph, and what else only the
// library asks of one.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/node.h"

namespace vkf {

/// The scope of a node: its label without the name of its op.
std::string scope_of(const NodeInfo& node);

/// A friend of Graph.
struct GraphEdit {
    /// While it lives, others are the scopes that are open.
    class Scopes {
    public:
        explicit Scopes(Graph& graph, std::vector<std::string> scopes = {})
            : graph_(graph), kept_(std::exchange(graph.scopes_, std::move(scopes))) {}
        ~Scopes() { graph_.scopes_ = std::move(kept_); }
        Scopes(const Scopes&) = delete;
        Scopes& operator=(const Scopes&) = delete;

    private:
        Graph& graph_;
        std::vector<std::string> kept_;
    };
    /// Takes back what is added to a graph while it lives, where an exception ends it: nodes,
    /// tensors, symbols, conditions and checks of runs. Nothing of before may be changed meanwhile.
    class Addition {
    public:
        explicit Addition(Graph& graph)
            : graph_(graph), before_(graph.extent()), exceptions_(std::uncaught_exceptions()) {}
        ~Addition() {
            if (std::uncaught_exceptions() > exceptions_) {
                graph_.shrink(before_);
            }
        }
        Addition(const Addition&) = delete;
        Addition& operator=(const Addition&) = delete;

    private:
        Graph& graph_;
        Graph::Extent before_;
        int exceptions_;
    };
    /// Makes a graph what it was again, unless what is added while it lives is kept.
    class Undo {
    public:
        explicit Undo(Graph& graph) : graph_(graph), before_(graph.clone()) {}
        ~Undo() {
            if (before_) {
                graph_.go_back(*before_);
            }
        }
        Undo(const Undo&) = delete;
        Undo& operator=(const Undo&) = delete;

        void keep() noexcept { before_.reset(); }

    private:
        Graph& graph_;
        std::unique_ptr<Graph> before_;
    };
    /// Makes a copy that compilation may change. Values keep their ids.
    static std::unique_ptr<Graph> clone(const Graph& graph) { return graph.clone(); }
    using Make = Graph::Make;
    /// Replaces `nodes`, which are in graph order, by the nodes that `make` adds (Rewrite::make).
    /// The new nodes stand at the place of `at`, which is one of `nodes`. Nodes that read the old
    /// outputs read the new ones from then on. New labels have the scope of the first old node.
    static void replace(Graph& graph, const std::vector<NodeId>& nodes, const Make& make, NodeId at) {
        graph.replace(nodes, make, at);
    }
    /// Makes a weight a state of its name, so that nodes may write it.
    static void make_state(Graph& graph, StorageId weight) { graph.storages_[weight].kind = StorageKind::state; }
    /// Graph::state() whatever scopes are open: `name` is all of its name.
    static Value state(Graph& graph, const std::string& name, const Shape& shape, DType dtype = DType::f32) {
        const Scopes none(graph);
        return graph.state(name, shape, dtype);
    }
    /// A constant of fp32 whose numbers may be made when a program gets its memory.
    static Value constant(Graph& graph, const std::string& name, const std::vector<std::int64_t>& shape,
                          std::shared_ptr<const ConstantData> data) {
        return graph.add_constant(name, shape, DType::f32, std::move(data));
    }
    /// Gives a node other parameters, under which it computes one more output.
    static Value widen(Graph& graph, NodeId node, std::shared_ptr<const void> params, const OutputSpec& output) {
        return graph.widen(node, std::move(params), output);
    }
    /// Adds a node that computes the same of other inputs; see NodeInfo::again.
    static NodeId repeat(Graph& graph, NodeId node, std::vector<ValueId> inputs, std::uint32_t again) {
        return graph.repeat(node, std::move(inputs), again);
    }
};

}  // namespace vkf
