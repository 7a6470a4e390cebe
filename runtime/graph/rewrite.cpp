// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/rewrite.h"

#include <algorithm>

#include "runtime/graph/wanted.h"

namespace vkf {

RewriteSite::RewriteSite(Graph& graph, NodeId node, const std::vector<WantedOutputs>& wanted)
    : graph_(graph), id_(node), wanted_(wanted) {}

bool RewriteSite::reads(const NodeInfo& node, StorageId storage) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId in) { return graph_.values()[in].storage == storage; });
}

NodeId RewriteSite::maker(std::size_t i, const OpType& op) const {
    const ValueInfo& read = graph_.values()[node().inputs[i]];
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

std::string RewriteSite::why_not_later(NodeId maker) const {
    const NodeInfo& node = graph_.nodes()[maker];
    for (const ValueId out : node.outputs) {
        const StorageId storage = graph_.values()[out].storage;
        if (graph_.storages()[storage].kind != StorageKind::intermediate) {
            return node.label + " is the output " + graph_.storages()[storage].name;
        }
        for (NodeId n = 0; n < graph_.nodes().size(); ++n) {
            if (n != id_ && wanted_[n] != 0 && reads(graph_.nodes()[n], storage)) {
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
            if (wanted_[n] != 0 && reads(between, graph_.values()[out].storage)) {
                return between.label + " reads " + node.label + " before";
            }
        }
        for (const ValueId out : between.writes) {
            if (reads(node, graph_.values()[out].storage)) {
                return between.label + " writes what " + node.label + " reads";
            }
        }
    }
    return {};
}

std::vector<std::string> rewrite(Graph& graph) {
    std::vector<std::string> matches, misses;
    std::vector<WantedOutputs> wanted = wanted_outputs(graph);
    for (NodeId n = 0; n < graph.nodes().size();) {
        const OpType& op = *graph.nodes()[n].op;
        if (wanted[n] == 0 || !op.rewrite) {
            ++n;
            continue;
        }
        const Rewrite found = op.rewrite(RewriteSite(graph, n, wanted));
        const std::string note = graph.nodes()[n].label + ": " + found.what;
        if (found.nodes.empty()) {
            if (!found.what.empty()) {
                misses.push_back(note);
            }
            ++n;
            continue;
        }
        matches.push_back(note);
        graph.replace(found.nodes, found.make);
        // the first of the new nodes is asked next: it may go on
        n = n + 1 - static_cast<NodeId>(found.nodes.size());
        wanted = wanted_outputs(graph);
    }
    matches.insert(matches.end(), misses.begin(), misses.end());
    return matches;
}

}  // namespace vkf
