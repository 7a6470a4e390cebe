// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/wanted.h"

#include "runtime/graph/node.h"

namespace vkf {

std::vector<WantedOutputs> wanted_outputs(const Graph& graph) {
    std::vector<bool> wanted;
    for (const StorageInfo& s : graph.storages()) {
        wanted.push_back(s.kind == StorageKind::output || s.kind == StorageKind::state);
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

}  // namespace vkf
