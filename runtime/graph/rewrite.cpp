// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/rewrite.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/graph/edit.h"
#include "runtime/graph/wanted.h"

namespace vkf {

namespace {

bool can_read(const NodeInfo& node, std::size_t i, const ValueInfo& view, const ValueInfo& moved) {
    return node.op->can_read ? node.op->can_read(node, i, view, moved) : is_contiguous(moved.shape, moved.strides);
}

bool reads(const Graph& graph, const NodeInfo& node, StorageId storage) {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId in) { return graph.values()[in].storage == storage; });
}

/// How many of a node's inputs are views on it.
std::uint32_t reads_of(const Graph& graph, const NodeInfo& node, StorageId storage) {
    return static_cast<std::uint32_t>(std::count_if(node.inputs.begin(), node.inputs.end(),
                                                    [&](ValueId in) { return graph.values()[in].storage == storage; }));
}

/// False for what nodes only read.
bool is_written(const Graph& graph, StorageId storage) {
    const StorageKind kind = graph.storages()[storage].kind;
    return kind != StorageKind::input && kind != StorageKind::weight && kind != StorageKind::constant;
}

/// Says that a node writes what another reads; empty: it does not.
std::string overwriting(const Graph& graph, const NodeInfo& writer, const NodeInfo& reader) {
    for (const ValueId out : writer.writes) {
        if (reads(graph, reader, graph.values()[out].storage)) {
            return writer.label + " writes what " + reader.label + " reads";
        }
    }
    return {};
}

}  // namespace

RewriteSite::RewriteSite(Graph& graph, NodeId node, const Wanted& wanted, const RewriteLimits& limits)
    : graph_(graph), id_(node), wanted_(wanted), limits_(limits) {}

NodeId RewriteSite::maker(std::size_t i, const OpType& op) const {
    const ValueInfo& read = graph_.values()[node().inputs[i]];
    if (!is_written(graph_, read.storage)) {
        return kNone;
    }
    for (NodeId n = id_; n-- > 0;) {
        const NodeInfo& other = graph_.nodes()[n];
        for (const ValueId out : other.outputs) {
            const ValueInfo& made = graph_.values()[out];
            if (made.storage == read.storage) {
                const bool whole = other.writes.empty() && made.shape == read.shape && made.strides == read.strides &&
                                   made.offset == read.offset;
                return whole && other.op == &op ? n : kNone;
            }
        }
    }
    return kNone;
}

NodeId RewriteSite::writer(std::size_t i) const {
    const StorageId read = graph_.values()[node().inputs[i]].storage;
    if (!is_written(graph_, read)) {
        return kNone;
    }
    for (NodeId n = id_; n-- > 0;) {
        for (const ValueId out : graph_.nodes()[n].outputs) {
            if (graph_.values()[out].storage == read) {
                return n;
            }
        }
    }
    return kNone;
}

std::string RewriteSite::why_not_later(NodeId maker) const {
    const NodeInfo& node = graph_.nodes()[maker];
    for (const ValueId out : node.outputs) {
        const StorageId storage = graph_.values()[out].storage;
        if (graph_.storages()[storage].kind != StorageKind::intermediate) {
            return node.label + " is the output " + graph_.storages()[storage].name;
        }
        const bool others = wanted_.reads(storage) != reads_of(graph_, this->node(), storage);
        for (NodeId n = 0; others && n < graph_.nodes().size(); ++n) {
            if (n != id_ && wanted_[n] != 0 && reads(graph_, graph_.nodes()[n], storage)) {
                return node.label + " is read by " + graph_.nodes()[n].label + " too";
            }
        }
    }
    return why_not_moved(maker);
}

std::string RewriteSite::why_not_moved(NodeId earlier) const {
    const NodeInfo& node = graph_.nodes()[earlier];
    for (NodeId n = earlier + 1; n < id_; ++n) {
        const NodeInfo& between = graph_.nodes()[n];
        for (const ValueId out : node.outputs) {
            if (wanted_[n] != 0 && reads(graph_, between, graph_.values()[out].storage)) {
                return between.label + " reads " + node.label + " before";
            }
        }
        if (std::string why = overwriting(graph_, between, node); !why.empty()) {
            return why;
        }
    }
    return {};
}

std::vector<NodeId> RewriteSite::siblings() const {
    const auto value = [&](ValueId id) -> const ValueInfo& { return graph_.values()[id]; };
    const ValueInfo& x = value(node().inputs.front());
    std::vector<NodeId> found;
    std::unordered_map<StorageId, NodeId> stems_from;  // which of them a tensor depends on
    std::uint32_t left = wanted_.reads(x.storage) - reads_before(x.storage);
    for (NodeId n = id_; left != 0 && n < graph_.nodes().size(); ++n) {
        if (wanted_[n] == 0) {
            continue;
        }
        const NodeInfo& other = graph_.nodes()[n];
        left -= reads_of(graph_, other, x.storage);
        if (other.again != node().again) {
            continue;
        }
        std::optional<NodeId> stem;
        for (const ValueId in : other.inputs) {
            const auto of = stems_from.find(value(in).storage);
            if (of != stems_from.end() && stem && *stem != of->second) {
                return found;
            }
            stem = of != stems_from.end() ? std::optional(of->second) : stem;
        }
        const ValueInfo* read = other.inputs.empty() ? nullptr : &value(other.inputs.front());
        if (!stem && other.op == node().op && read->storage == x.storage && read->shape == x.shape &&
            read->strides == x.strides && read->offset == x.offset) {
            stem = n;
            if (n != id_) {
                found.push_back(n);
            }
        }
        for (std::size_t i = 0; stem && i < other.outputs.size(); ++i) {
            stems_from[value(other.outputs[i]).storage] = *stem;
        }
    }
    return found;
}

std::uint32_t RewriteSite::reads_before(StorageId storage) const {
    std::uint32_t count = 0;
    for (NodeId n = id_; n-- > 0;) {
        const NodeInfo& other = graph_.nodes()[n];
        count += wanted_[n] != 0 ? reads_of(graph_, other, storage) : 0;
        const bool made_here = std::any_of(other.outputs.begin(), other.outputs.end(),
                                           [&](ValueId out) { return graph_.values()[out].storage == storage; });
        if (made_here && other.writes.empty()) {
            break;
        }
    }
    return count;
}

std::string RewriteSite::why_not_sooner(NodeId later) const {
    for (NodeId n = id_; n < later; ++n) {
        if (std::string why = overwriting(graph_, graph_.nodes()[n], graph_.nodes()[later]); !why.empty()) {
            return why;
        }
    }
    return {};
}

std::string RewriteSite::why_not_columns(NodeId node, std::int64_t pitch, std::int64_t first) const {
    const NodeInfo& made = graph_.nodes()[node];
    for (const ValueId out : made.outputs) {
        const ValueInfo& whole = graph_.values()[out];
        if (graph_.storages()[whole.storage].kind != StorageKind::intermediate) {
            return made.label + " is the output " + graph_.storages()[whole.storage].name;
        }
        if (!whole.is_rows()) {
            return made.label + " is stored in another order";
        }
        const std::int64_t width = whole.shape.back().constant();
        std::uint32_t left = wanted_.reads(whole.storage);
        for (NodeId n = node + 1; left != 0 && n < graph_.nodes().size(); ++n) {
            const NodeInfo& reader = graph_.nodes()[n];
            for (std::size_t i = 0; wanted_[n] != 0 && i < reader.inputs.size(); ++i) {
                const ValueInfo& view = graph_.values()[reader.inputs[i]];
                if (view.storage != whole.storage) {
                    continue;
                }
                --left;
                const std::optional<ValueInfo> moved = view.in_columns(width, pitch, first);
                if (!moved || !can_read(reader, i, view, *moved)) {
                    return reader.label + " reads " + made.label + " densely, or would sum up in another order";
                }
            }
        }
    }
    return {};
}

std::string RewriteSite::why_not_adjacent(std::span<const StorageId> weights) const {
    return limits_.why_not_adjacent ? limits_.why_not_adjacent(weights) : std::string();
}

bool RewriteSite::too_large(const Shape& shape) const {
    std::uint64_t count = 1;
    for (const Dim& d : shape) {
        const auto size = static_cast<std::uint64_t>(graph_.max_of(d));
        if (size != 0 && count > limits_.elements / size) {
            return true;
        }
        count *= size;
    }
    return false;
}

namespace {

/// One way through the nodes, each asked by `rule`.
class Pass {
public:
    Pass(Graph& graph, const RewriteLimits& limits) : graph_(graph), limits_(limits) {}

    void run(Rewrite (*OpType::*rule)(const RewriteSite&)) {
        Wanted wanted(graph_);
        for (NodeId n = 0; n < graph_.nodes().size();) {
            const auto ask = graph_.nodes()[n].op->*rule;
            if (wanted[n] == 0 || !ask) {
                ++n;
                continue;
            }
            const Rewrite found = ask(RewriteSite(graph_, n, wanted, limits_));
            const std::string note = graph_.nodes()[n].label + ": " + found.what;
            if (found.nodes.empty()) {
                if (!found.what.empty()) {
                    misses_.push_back(note);
                }
                ++n;
                continue;
            }
            matches_.push_back(note);
            // the first of the new nodes is asked next: it may go on
            wanted.replace(found.nodes, found.make, n, n);
        }
    }

    std::vector<std::string> notes() && {
        matches_.insert(matches_.end(), misses_.begin(), misses_.end());
        return std::move(matches_);
    }

private:
    Graph& graph_;
    const RewriteLimits& limits_;
    std::vector<std::string> matches_, misses_;
};

}  // namespace

std::vector<std::string> rewrite(Graph& graph, const RewriteLimits& limits) {
    Pass pass(graph, limits);
    pass.run(&OpType::rewrite);
    pass.run(&OpType::join);
    return std::move(pass).notes();
}

}  // namespace vkf
