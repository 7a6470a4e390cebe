// SPDX-License-Identifier: Apache-2.0
// How heads, widths and vocabularies are shared out over the ranks of a graph: decided here alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/head_sizes.h"
#include "ops/ops.h"

namespace vkf {

/// True where the graph is of one rank.
inline bool is_whole(const Graph& graph) { return graph.rank().ranks == 1; }

/// A rank's share of a layer's inner width: in units of 32 columns, which int4 keeps together,
/// where there are as many units as ranks, else in smaller ones. Throws Error naming the width
/// where even so a rank would have nothing. This and what follows is in proportion to the ranks'
/// speeds (share_of).
Part share_of_width(std::int64_t width, const Rank& rank);
/// Likewise of a vocabulary, in units of a row.
Part share_of_vocabulary(std::int64_t rows, const Rank& rank);
/// The numbers of columns and rows that all ranks have.
std::vector<std::int64_t> shares_of_width(std::int64_t width, const Rank& rank);
std::vector<std::int64_t> shares_of_vocabulary(std::int64_t rows, const Rank& rank);

/// The layers of a rank where each has some, one behind the other: one at least. Throws Error
/// naming the numbers where there are fewer layers than ranks.
Part share_of_layers(std::int64_t layers, const Rank& rank);

/// The heads of a rank: whole groups that look at one key and value head, where there are as many
/// groups as ranks. Its key and value heads are those that its query heads look at; one that
/// heads of two ranks look at is kept by both.
struct HeadShare {
    HeadSizes sizes;
    Part query;                    ///< in heads
    std::vector<std::int64_t> kv;  ///< numbers of its key and value heads, in their order
};
/// Throws Error naming the numbers where there are fewer heads than ranks.
HeadShare share_of_heads(const HeadSizes& whole, const Rank& rank);

/// The rows of a projection by which these heads are made, `first` rows after its first; of `whole`
/// rows in all.
Shard rows_of_heads(const std::vector<std::int64_t>& heads, std::int64_t head_dim, std::int64_t first,
                    std::int64_t whole);

/// Throws Error where the graph is of several ranks and Graph::after_linear() was given something:
/// that is for whole layers, and ranks have shares of them.
void refuse_hook_of_shares(const Graph& graph);

/// x W^T + b of a part of the rows of `name`.weight. Throws Error as refuse_hook_of_shares() does,
/// as the next one.
Value linear_rows(Value x, const std::string& name, const Shard& rows, bool bias,
                  Activation activation = Activation::none);
/// x W^T of a part of the columns of `name`.weight (out, ...), which x has, summed over the ranks;
/// then the bias.
Value linear_columns(Value x, const std::string& name, const Shard& columns, std::int64_t out, bool bias);

}  // namespace vkf
