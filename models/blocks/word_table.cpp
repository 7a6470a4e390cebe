// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/word_table.h"

#include "layers/linear.h"
#include "layers/parallel.h"
#include "layers/sharing.h"

namespace vkf {

WordTable::WordTable(Graph& graph, const std::string& name, std::int64_t vocabulary, std::int64_t width)
    : name_(name), vocabulary_(vocabulary), width_(width) {
    if (is_whole(graph)) {
        rows_ = graph.weight(name, {vocabulary, width});
    } else {
        const Part own = share_of_vocabulary(vocabulary, graph.rank());
        rows_ = graph.weight(name, {own.count, width}, {0, vocabulary, {own}});
    }
}

Value WordTable::embed(Value ids, float scale) const {
    return vocab_parallel_embedding(ids, name_, vocabulary_, width_, scale);
}

Value WordTable::logits(Value h, bool tied) const {
    Graph& g = h.graph();
    if (!tied) {
        return is_whole(g)
                   ? linear_layer(h, "lm_head", vocabulary_, false)
                   : linear_rows(h, "lm_head", {0, vocabulary_, {share_of_vocabulary(vocabulary_, g.rank())}}, false);
    }
    const Scope scope(g, "lm_head");  // by which an adapter is asked for
    const Value y = linear(h, rows_);
    return g.linear_hook() ? g.linear_hook()(h, y) : y;
}

}  // namespace vkf
