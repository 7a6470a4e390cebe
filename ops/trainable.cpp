// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "ops/checks.h"
#include "ops/optimizer.h"
#include "runtime/graph/edit.h"

namespace vkf {

namespace {

constexpr const char* kName = "trainable";

/// True where a name fits a pattern in which `*` stands for any characters.
bool fits(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0;
    std::size_t star = std::string_view::npos, from = 0;  // the last star, and where its text ends
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            from = n;
        } else if (p < pattern.size() && pattern[p] == name[n]) {
            ++p;
            ++n;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            n = ++from;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

std::vector<Value> trainable(Graph& graph, const std::vector<std::string>& patterns) {
    std::vector<bool> found(patterns.size(), false);
    std::vector<bool> seen(graph.storages().size(), false);
    std::vector<Value> out;
    for (ValueId id = 0; id < graph.values().size(); ++id) {  // the first of a storage is all of it
        const StorageId storage = graph.values()[id].storage;
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
