// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/decompose.h"

#include <algorithm>

#include "runtime/graph/edit.h"
#include "runtime/graph/wanted.h"

namespace vkf {

std::vector<std::string> decompose_declined(Graph& graph, const Capabilities& device) {
    std::vector<std::string> notes;
    const std::vector<WantedOutputs> wanted = wanted_outputs(graph);
    // The outputs wanted of the nodes from `n` on, the next one last.
    std::vector<WantedOutputs> left(wanted.rbegin(), wanted.rend());
    for (NodeId n = 0; n < graph.nodes().size();) {
        const WantedOutputs outputs = left.back();
        left.pop_back();
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
        const std::size_t before = graph.nodes().size();
        GraphEdit::replace(
            graph, {n},
            [&](Graph& g, const std::vector<NodeInfo>& old) { return op.decompose(g, old.front(), outputs); }, n);
        const std::size_t added = graph.nodes().size() + 1 - before;
        // the new nodes may be declined in turn
        const std::vector<WantedOutputs> now = wanted_outputs(graph);
        for (std::size_t i = added; i-- > 0;) {
            left.push_back(now[n + i]);
        }
    }
    return notes;
}

}  // namespace vkf
