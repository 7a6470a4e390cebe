// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters (Hu et al. 2021, LoRA), as PEFT lays them out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../ops/ops.h"

namespace vkf {

struct LoraOptions {
    std::int64_t rank = 8;
    float alpha = 8.0f;  ///< over the rank, what B A x is multiplied by
    /// The layers that have an adapter, by their whole names, by the last parts of these (q_proj,
    /// self_attn.q_proj), or by patterns in which `*` stands for any characters.
    std::vector<std::string> targets = {};
};

/// Gives adapters to the linear layers of a graph that are described after it: y becomes y + alpha
/// / rank * B (A x). A (rank, in) and B (out, rank) are states, NAME.lora_A.weight and
/// NAME.lora_B.weight, which are 0 at first: a layer then computes what it did without.
class VKF_API Lora {
public:
    /// Throws Error for a rank below 1, where there is no target, and where the graph has a hook
    /// (Graph::after_linear()) already, as of another Lora. The graph must outlive it.
    Lora(Graph& graph, const LoraOptions& options);

    /// A and B of each layer in turn, once where a layer is described several times. Throws Error
    /// naming a target that no layer fits so far.
    std::vector<Value> parameters() const;

private:
    struct Parts;
    std::shared_ptr<Parts> parts_;
};

}  // namespace vkf
