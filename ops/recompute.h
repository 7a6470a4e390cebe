// SPDX-License-Identifier: Apache-2.0
// Blocks whose values are computed again for their gradient, instead of being kept (Chen et al.
// 2016). torch.utils.checkpoint.
#pragma once

#include "../runtime/graph/graph.h"

namespace vkf {

/// While it lives, what is described is a block:
///
///     for (int i = 0; i < layers; ++i) {
///         const Recompute block(g);
///         x = layer(x, i);
///     }
///
/// gradients() computes a block a second time before it differentiates it. So of all values between
/// the forward and the backward pass only those are kept that come into a block from outside, and
/// those that nodes outside need. Where every layer is a block, memory grows by one activation a
/// layer, and time by less than the forward pass.
///
/// The gradients stay the same, bit for bit, also those at values inside of a block: the nodes, and
/// what dropout draws, are the same. (Attention whose weights are asked for too is composed, and
/// may be fused where it is computed again; last bits may differ then.) Blocks may stand in each
/// other: the inner one is computed again within the outer one, and once more before it is
/// differentiated. A block must not write states, nor read one that is written later: gradients()
/// throws Error naming the node. It is called when all blocks have ended.
class VKF_API Recompute {
public:
    explicit Recompute(Graph& graph) : graph_(graph) { graph_.begin_recompute(); }
    ~Recompute() { graph_.close_recompute(); }
    Recompute(const Recompute&) = delete;
    Recompute& operator=(const Recompute&) = delete;

private:
    Graph& graph_;
};

}  // namespace vkf
