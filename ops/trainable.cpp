// SPDX-License-Identifier: Apache-2.0
#include "ops/checks.h"
#include "ops/optimizer.h"
#include "runtime/base/pattern.h"
#include "runtime/graph/edit.h"

namespace vkf {

namespace {

constexpr const char* kName = "trainable";

}  // namespace

std::vector<Value> trainable(Graph& graph, const std::vector<std::string>& patterns) {
    std::vector<bool> found(patterns.size(), false);
    std::vector<bool> seen(graph.storages().size(), false);
    std::vector<Value> out;
    for (ValueId id = 0; id < graph.values().size(); ++id) {  // the first of a storage is all of it
        const StorageId storage = graph.values()[id].storage;
        if (storage == kNoStorage) {
            continue;
        }
        const StorageInfo& s = graph.storages()[storage];
        if (seen[storage] || s.kind != StorageKind::weight || s.dtype != DType::f32) {
            continue;
        }
        seen[storage] = true;
        bool wanted = false;
        for (std::size_t i = 0; i < patterns.size(); ++i) {
            if (fits(patterns[i], s.name)) {
                found[i] = wanted = true;
            }
        }
        if (wanted) {
            out.emplace_back(graph, id);
        }
    }
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        support::require(found[i], kName, "no weight of the graph fits \"" + patterns[i] + "\"");
    }
    for (const Value& parameter : out) {
        GraphEdit::make_state(graph, graph.values()[parameter.id()].storage);
    }
    return out;
}

}  // namespace vkf
