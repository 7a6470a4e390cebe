// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values of a decoder's layer, from its input to what attends.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/ops.h"

namespace vkf {

struct HeadSizes {
    std::int64_t heads = 1, kv_heads = 1, head_dim = 1;
};

/// What project() gives is (B, L, heads * d) and twice (B, L, kv_heads * d); with the heads split,
/// (B, heads, L, d) and twice (B, kv_heads, L, d).
struct QueryKeyValue {
    Value query, key, value;
};

/// What shapes softmax(q k^T scale); softcap c makes a score s into c tanh(s / c).
struct AttentionScores {
    std::optional<float> scale = {};  ///< unset: 1/sqrt(head_dim)
    float softcap = 0.0f;             ///< 0: none
};

/// The names of the three projections.
using ProjectionNames = std::array<std::string, 3>;
/// x (B, L, E) three times projected.
QueryKeyValue project(Value x, const HeadSizes& sizes, bool bias = false,
                      const ProjectionNames& names = {"q_proj", "k_proj", "v_proj"});
/// Projects by one matrix `name`, whose rows are q | k | v.
QueryKeyValue project_fused(Value x, const std::string& name, const HeadSizes& sizes, bool bias = false);

QueryKeyValue split_heads(const QueryKeyValue& projected, const HeadSizes& sizes);
/// Splits heads, with an RMSNorm of each head's query and key, q_norm and k_norm, whose weights
/// all heads share.
QueryKeyValue split_and_norm_heads(const QueryKeyValue& projected, const HeadSizes& sizes, float eps);

}  // namespace vkf
