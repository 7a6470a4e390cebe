// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/weight_order.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/made.h"
#include "runtime/compile/stored.h"
#include "runtime/graph/edit.h"
#include "runtime/graph/rewrite.h"

namespace vkf {

std::vector<StorageId> weight_order(const Graph& graph) {
    ++made_counts.weight_orders;
    const std::unique_ptr<Graph> work = GraphEdit::clone(graph);
    std::map<StorageId, StorageId> behind;  // each weight, and the one that is to lie behind it
    std::set<StorageId> led;
    // true where `after` leads to `before` already
    const auto circle = [&](StorageId before, StorageId after) {
        for (auto next = behind.find(after); after != before && next != behind.end(); next = behind.find(after)) {
            after = next->second;
        }
        return after == before;
    };
    const auto why_not_adjacent = [&](std::span<const StorageId> weights) -> std::string {
        for (std::size_t i = 1; i < weights.size(); ++i) {
            const StorageId before = weights[i - 1], after = weights[i];
            const auto found = behind.find(before);
            if (found == behind.end() && !led.contains(after) && !circle(before, after)) {
                behind.emplace(before, after);
                led.insert(after);
            } else if (found == behind.end() || found->second != after) {
                return "one of them is read together with others";
            }
        }
        return {};
    };
    rewrite(*work, {.why_not_adjacent = why_not_adjacent});
    std::vector<StorageId> order;
    for (StorageId s = 0; s < graph.storages().size(); ++s) {
        if (graph.storages()[s].kind != StorageKind::weight || led.contains(s)) {
            continue;
        }
        order.push_back(s);
        for (auto next = behind.find(s); next != behind.end(); next = behind.find(next->second)) {
            order.push_back(next->second);
        }
    }
    return order;
}

std::vector<HostTensor> in_weight_order(std::span<const HostTensor> tensors, const Graph& graph) {
    std::map<std::string_view, std::size_t> places;
    for (const StorageId s : weight_order(graph)) {
        places.emplace(graph.storages()[s].name, places.size());
    }
    std::multimap<std::size_t, const HostTensor*> at;  // equal places keep their order
    for (const HostTensor& t : tensors) {
        const auto found = places.find(t.name);
        at.emplace(found == places.end() ? places.size() : found->second, &t);
    }
    std::vector<HostTensor> sorted;
    for (const auto& [place, tensor] : at) {
        sorted.push_back(*tensor);
    }
    return sorted;
}

WeightLayout make_weight_layout(const Graph& graph, std::span<const HostTensor> tensors, const Capabilities& device,
                                const LoadOptions& options) {
    return make_weight_layout(in_weight_order(tensors, graph), device, options);
}

WeightLayout declared_layout(const Graph& graph, const Capabilities& device) {
    std::vector<StoredTensor> stored;
    for (const StorageId s : weight_order(graph)) {
        stored.push_back(as_declared(graph.storages()[s]));
    }
    return WeightLayout(std::move(stored), device.storage_alignment, device.max_allocation);
}

std::string why_not_adjacent(const Graph& graph, const WeightLayout& layout, std::span<const StorageId> weights) {
    const StoredTensor* before = nullptr;
    for (const StorageId s : weights) {
        const StoredTensor* t = layout.find(graph.storages()[s].name);
        if (before && t && t->type != before->type) {
            return t->name + " is kept as " + std::string(name_of(t->type)) + ", " + before->name + " as " +
                   std::string(name_of(before->type));
        }
        if (before && t && (t->block != before->block || t->offset != before->offset + before->bytes)) {
            return t->name + " does not lie behind " + before->name;
        }
        before = t;
    }
    return {};
}

}  // namespace vkf
