// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/wanted.h"

#include <algorithm>
#include <utility>

#include "runtime/graph/node.h"

namespace vkf {

namespace {

/// Whoever looks at a graph from outside sees these.
bool is_seen(const StorageInfo& storage) {
    return storage.kind == StorageKind::output || storage.kind == StorageKind::state;
}

}  // namespace

std::vector<WantedOutputs> wanted_outputs(const Graph& graph) {
    std::vector<bool> wanted;
    for (const StorageInfo& s : graph.storages()) {
        wanted.push_back(is_seen(s));
    }
    std::vector<WantedOutputs> of(graph.nodes().size(), 0);
    for (std::size_t n = of.size(); n-- > 0;) {
        const NodeInfo& node = graph.nodes()[n];
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
            of[n] |= wanted[graph.values()[node.outputs[i]].storage] ? WantedOutputs{1} << i : 0;
        }
        for (const ValueId in : node.inputs) {
            wanted[graph.values()[in].storage] = wanted[graph.values()[in].storage] || of[n] != 0;
        }
    }
    return of;
}

Wanted::Wanted(Graph& graph) : graph_(graph), of_(graph.nodes().size(), 0), reads_(graph.storages().size(), 0) {
    for (auto n = static_cast<NodeId>(of_.size()); n-- > 0;) {
        add(n);
    }
}

StorageId Wanted::storage(ValueId value) const { return graph_.values()[value].storage; }

bool Wanted::is_needed(StorageId storage) const { return reads_[storage] != 0 || is_seen(graph_.storages()[storage]); }

WantedOutputs Wanted::outputs_of(NodeId node) const {
    WantedOutputs outputs = 0;
    const std::vector<ValueId>& made = graph_.nodes()[node].outputs;
    for (std::size_t i = 0; i < made.size(); ++i) {
        outputs |= is_needed(storage(made[i])) ? WantedOutputs{1} << i : 0;
    }
    return outputs;
}

void Wanted::add(NodeId node) {
    of_[node] = outputs_of(node);
    if (of_[node] != 0) {
        for (const ValueId in : graph_.nodes()[node].inputs) {
            ++reads_[storage(in)];
        }
    }
}

void Wanted::remove_reads(NodeId node, std::vector<StorageId>& unread) {
    for (const ValueId in : graph_.nodes()[node].inputs) {
        if (--reads_[storage(in)] == 0) {
            unread.push_back(storage(in));
        }
    }
}

std::size_t Wanted::replace(const std::vector<NodeId>& nodes, const GraphEdit::Make& make, NodeId at, NodeId& first) {
    std::vector<StorageId> unread;
    std::vector<std::pair<ValueId, StorageId>> made;  // what the old nodes made, and where it was
    for (const NodeId id : nodes) {
        for (const ValueId output : graph_.nodes()[id].outputs) {
            made.emplace_back(output, storage(output));
        }
        if (of_[id] != 0) {
            remove_reads(id, unread);
        }
    }
    const std::size_t before = graph_.nodes().size();
    GraphEdit::replace(graph_, nodes, make, at);
    const std::size_t added = graph_.nodes().size() + nodes.size() - before;

    reads_.resize(graph_.storages().size(), 0);
    for (const auto& [value, was] : made) {
        if (const StorageId is = storage(value); is != was) {
            reads_[is] += std::exchange(reads_[was], 0);
        }
    }
    of_.insert(of_.begin() + at + 1, added, 0);
    for (auto id = nodes.rbegin(); id != nodes.rend(); ++id) {
        of_.erase(of_.begin() + static_cast<std::ptrdiff_t>(*id > at ? *id + added : *id));
    }
    first =
        at + 1 - static_cast<NodeId>(std::count_if(nodes.begin(), nodes.end(), [&](NodeId id) { return id <= at; }));
    for (std::size_t n = first + added; n-- > first;) {
        add(static_cast<NodeId>(n));
    }

    // what made something that nothing reads any more is not run, nor what was made for it alone
    const auto makes = [&](NodeId node, StorageId s) {
        const std::vector<ValueId>& outputs = graph_.nodes()[node].outputs;
        return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return storage(v) == s; });
    };
    const auto is_gone = [&](StorageId s) {
        bool is = std::any_of(made.begin(), made.end(), [&](const auto& m) { return m.second == s; });
        for (std::size_t n = first; is && n < first + added; ++n) {
            is = !makes(static_cast<NodeId>(n), s);
        }
        return is;
    };
    while (!unread.empty()) {
        const StorageId lost = unread.back();
        unread.pop_back();
        if (graph_.storages()[lost].kind != StorageKind::intermediate || is_needed(lost) || is_gone(lost)) {
            continue;
        }
        for (NodeId n = 0; n < of_.size(); ++n) {
            if (of_[n] == 0 || !makes(n, lost)) {
                continue;
            }
            of_[n] = outputs_of(n);
            if (of_[n] == 0) {
                remove_reads(n, unread);
            }
        }
    }
    return added;
}

}  // namespace vkf
