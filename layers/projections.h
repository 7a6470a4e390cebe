// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values, from a layer's input to what attends. B batch, L tokens, E width, d
// head size. `sizes` are those of the whole layer; where the graph is of several ranks
// (Graph::set_rank), what is projected are the heads of this one.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "layers/head_sizes.h"
#include "ops/ops.h"

namespace vkf {

/// Three projections: (B, L, heads * d) and twice (B, L, kv_heads * d) as they are projected; (B,
/// heads, L, d) and twice (B, kv_heads, L, d) once the heads are split.
struct QueryKeyValue {
    Value query, key, value;
};

/// The names of the three projections.
using ProjectionNames = std::array<std::string, 3>;
/// x (B, L, E) three times projected; or three of them, whose lengths and widths may differ.
QueryKeyValue project(const QueryKeyValue& x, const HeadSizes& sizes, bool bias = false,
                      const ProjectionNames& names = {"q_proj", "k_proj", "v_proj"});
inline QueryKeyValue project(Value x, const HeadSizes& sizes, bool bias = false,
                             const ProjectionNames& names = {"q_proj", "k_proj", "v_proj"}) {
    return project(QueryKeyValue{x, x, x}, sizes, bias, names);
}
/// Projects by one matrix `name`, whose rows are q | k | v.
QueryKeyValue project_fused(Value x, const std::string& name, const HeadSizes& sizes, bool bias = false);
/// Cuts (B, L, (heads + 2 kv_heads) * d) into its columns q | k | v.
QueryKeyValue split_columns(Value projected, const HeadSizes& sizes);

/// Projects as project() does, with an RMSNorm of the whole query and of the whole key, q_norm and
/// k_norm, each over all heads together.
QueryKeyValue project_and_norm(Value x, const HeadSizes& sizes, bool bias, float eps);
/// The projection behind attention: `attended` (B, L, heads * d), of this rank's heads, to
/// (B, L, out).
Value output_projection(Value attended, const std::string& name, const HeadSizes& sizes, std::int64_t out,
                        bool bias = false);

QueryKeyValue split_heads(const QueryKeyValue& projected, const HeadSizes& sizes);
/// What x (heads), or what broadcasts to (B, heads, L, S), says of some of the heads.
Value some_heads(Value x, std::int64_t heads, const Part& some);
Mask some_heads(Mask mask, std::int64_t heads, const Part& some);
/// Splits heads, with an RMSNorm of each head's query and key, q_norm and k_norm, whose weights
/// all heads share.
QueryKeyValue split_and_norm_heads(const QueryKeyValue& projected, const HeadSizes& sizes, float eps);

}  // namespace vkf
