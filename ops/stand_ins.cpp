// SPDX-License-Identifier: Apache-2.0
#include "ops/stand_ins.h"

#include "runtime/graph/edit.h"

namespace vkf::support {

NodeId StandIns::of(NodeId id) {
    while (!open_.empty() && !open_.back().nodes.contains(id)) {
        open_.pop_back();
    }
    std::vector<NodeRange> around;
    for (const NodeRange& block : graph_.recomputed()) {
        if (block.contains(id)) {
            around.insert(around.begin(), block);
        }
    }
    for (std::size_t i = open_.size(); i < around.size(); ++i) {
        repeat(around[i]);
    }
    return open_.empty() ? id : open_.back().first + (id - open_.back().nodes.first);
}

void StandIns::repeat(const NodeRange& nodes) {
    const auto first = static_cast<NodeId>(graph_.nodes().size());
    open_.push_back({nodes, first});
    Block& block = open_.back();
    for (NodeId id = nodes.first; id < nodes.last; ++id) {
        check_(id);
        std::vector<ValueId> inputs = graph_.nodes()[id].inputs;
        for (ValueId& input : inputs) {
            input = of_value(input);
        }
        const NodeId made = GraphEdit::repeat(graph_, id, std::move(inputs), first);
        for (std::size_t i = 0; i < graph_.nodes()[id].outputs.size(); ++i) {
            const ValueId old = graph_.nodes()[id].outputs[i], now = graph_.nodes()[made].outputs[i];
            block.homes.insert_or_assign(graph_.values()[old].storage, Value(graph_, now));
            block.values[old] = now;
        }
    }
}

ValueId StandIns::of_value(ValueId id) {
    const ValueInfo view = graph_.values()[id];
    for (auto block = open_.rbegin(); block != open_.rend(); ++block) {
        if (const auto found = block->values.find(id); found != block->values.end()) {
            return found->second;
        }
        if (const auto home = block->homes.find(view.storage); home != block->homes.end()) {
            const Value made = graph_.add_view(home->second, view.shape, view.strides, view.offset);
            return block->values[id] = made.id();
        }
    }
    return id;
}

void StandIns::widen_alike(NodeId id) {
    const NodeInfo widest = graph_.nodes()[of(id)];
    const auto widen = [&](NodeId other) {
        for (std::size_t i = graph_.nodes()[other].outputs.size(); i < widest.outputs.size(); ++i) {
            const Value like(graph_, widest.outputs[i]);
            GraphEdit::widen(graph_, other, widest.params, {like.dtype(), like.shape(), {}, {}});
        }
    };
    widen(id);
    for (const Block& block : open_) {
        widen(block.first + (id - block.nodes.first));
    }
}

}  // namespace vkf::support
