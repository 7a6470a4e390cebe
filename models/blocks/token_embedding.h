// SPDX-License-Identifier: Apache-2.0
// A model's vocabulary: the embedding of its tokens, and the same matrix as the last one. Where the
// graph is of several ranks, a rank has a share of the rows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "ops/ops.h"

namespace vkf {

class TokenEmbedding {
public:
    /// `name` (vocabulary, width), a weight of the graph once it is looked up or multiplied.
    TokenEmbedding(Graph& graph, std::string name, std::int64_t vocabulary, std::int64_t width)
        : graph_(&graph), name_(std::move(name)), vocabulary_(vocabulary), width_(width) {}

    /// The rows of ids (...) i32: (..., width).
    Value embed(Value ids, float scale = 1.0f) const;
    /// Logits of h (..., width): (..., this rank's part of the vocabulary). Tied: by the table
    /// itself; else by lm_head. With a softcap c > 0 each logit x is c tanh(x / c).
    Value logits(Value h, bool tied, float softcap = 0.0f) const;

private:
    Value product(Value h, bool tied) const;

    Graph* graph_;
    std::string name_;
    std::int64_t vocabulary_, width_;
};

}  // namespace vkf
