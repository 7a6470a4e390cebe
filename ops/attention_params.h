// SPDX-License-Identifier: Apache-2.0
// Between what describes fused attention and what dispatches it.
#pragma once

#include "ops/support.h"

namespace vkf {

inline constexpr const char* kFusedAttentionName = "fused_attention";

struct AttentionParams {
    FusedAttentionOptions options;
    bool full = false;  ///< something is asked for that takes more than four buffers
    // inputs of the node after query, key and value; -1: not there
    int mask = -1, bias = -1, slopes = -1, sinks = -1, queries = -1, keys = -1, pages = -1;
    int ring = -1;  ///< a view as long as there are keys in the ring; the next one ends with the first
    std::uint32_t mask_present = 0, bias_present = 0, slopes_present = 0, sinks_present = 0;
    std::uint32_t group = 1;
    std::int64_t most_queries = 0, most_keys = 0, head_dim = 0;
};

extern const OpType kFusedAttention;

}  // namespace vkf
