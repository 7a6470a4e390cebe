// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/decompose.h"

#include <algorithm>

#include "runtime/graph/edit.h"
#include "runtime/graph/wanted.h"

namespace vkf {

std::vector<std::string> decompose_declined(Graph& graph, const Capabilities& device) {
    std::vector<std::string> notes;
    Wanted wanted(graph);
    for (NodeId n = 0; n < graph.nodes().size();) {
        const WantedOutputs outputs = wanted[n];
        const NodeInfo& node = graph.nodes()[n];
        const OpType& op = *node.op;
        const std::string reason = outputs != 0 && op.declined ? op.declined(device, node, outputs) : std::string();
        if (reason.empty()) {
            ++n;
            continue;
        }
        const std::string note = node.label + ": decomposed into other ops: " + reason;
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
            notes.push_back(note);
        }
        // the new nodes may be declined in turn
        wanted.replace(
            {n}, [&](Graph& g, const std::vector<NodeInfo>& old) { return op.decompose(g, old.front(), outputs); }, n,
            n);
    }
    return notes;
}

}  // namespace vkf
