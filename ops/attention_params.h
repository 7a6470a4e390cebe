// SPDX-License-Identifier: Apache-2.0
// Between what describes attention, what dispatches it, and what it is decomposed into.
#pragma once

#include "ops/ops.h"
#include "runtime/graph/op.h"

namespace vkf {

inline constexpr const char* kAttentionName = "scaled_dot_product_attention";

struct AttentionParams {
    float scale = 1.0f, softcap = 0.0f;
    float fill = 0.0f;  ///< the number that masked scores become
    Causal causal = Causal::none;
    std::int64_t window = 0;
    Polarity polarity = Polarity::attend;
    float dropout = 0.0f;
    Dim dropout_seed = 0;
    ScoreMod score_mod = {};
    WeightType kv_type = WeightType::f32;
    std::int64_t value_dim = 0;  ///< dv; 0: it is not fixed
    std::optional<RingRows> ring = {};

    // Inputs of the node after query, key and value; -1: not there.
    int mask = -1, bias = -1, slopes = -1, sinks = -1, cumulative_queries = -1, pages = -1;
    int key_numbers = -1;  ///< cumulative_keys where packed_keys, else key_lengths
    bool packed_keys = false;

    // Outputs of the node after y; -1: not there.
    int weights = -1, log_sum_exp = -1;
    /// for the gradient: (B, H, L, 2), the log-sum-exp and what rounding took off it
    int log_sum_exp_parts = -1;

    std::string not_fused = {};  ///< the part that no fused kernel can do; empty: none
    bool composable = true;      ///< it can be decomposed

    // The fused kernels read these.
    bool full = false;  ///< something is asked for that takes more than four buffers
    std::uint32_t mask_present = 0, bias_present = 0, slopes_present = 0, sinks_present = 0;
    std::uint32_t group = 1;
    std::int64_t most_heads = 0;  ///< most query heads, in all batches
    std::int64_t most_queries = 0, most_keys = 0, head_dim = 0;
};

namespace support {

/// Checks the numbers of attention over scores (B, H, L, S), and that its mask, bias, slopes and
/// sinks are of the graph and broadcast to them. scaled_dot_product_attention() does so too; a
/// layer does before it has a weight, or writes a cache.
void check_attention(const Graph& graph, const AttentionOptions& options, const Shape& scores);

/// Throws Error in the name of `op` where `before_end` is not what it must be in the ring x of so
/// many rows; where symbols decide that, runs are refused.
void check_ring(const char* op, const RingRows& ring, const Value& x, const Dim& rows);

/// Gives the rows that a ring (B, Hk, S, n) holds, the oldest first.
Value ring_in_order(Value x, const RingRows& ring);

}  // namespace support

/// Makes attention of other ops where a device declines it: OpType::decompose.
std::vector<Value> decompose_attention(Graph& graph, const NodeInfo& node, WantedOutputs wanted);

extern const OpType kAttention;

}  // namespace vkf
