// SPDX-License-Identifier: Apache-2.0
// Layers whose weights are shared out over ranks (Shoeybi et al. 2019, Megatron-LM; fairscale). The
// graph's rank (Graph::set_rank) says which part this one has; of one rank each is the plain layer.
// A checkpoint keeps the whole weights, of which cut() makes a rank's.
#pragma once

#include <cstdint>
#include <string>

#include "../ops/collectives.h"
#include "../ops/ops.h"

namespace vkf {

struct ColumnParallelLinearOptions {
    bool bias = false;
    Activation activation = Activation::none;
    /// every rank gets the outputs of all: (..., out); else its own, (..., its share of out)
    bool gather_output = false;
};

/// x W^T + b with the rows of `name`.weight (out, in) and `name`.bias (out) shared out: x (..., in)
/// is the same on every rank.
VKF_API Value column_parallel_linear(Value x, const std::string& name, std::int64_t out,
                                     const ColumnParallelLinearOptions& options = {});

struct RowParallelLinearOptions {
    bool bias = false;
    /// x has this rank's share of `in` alone, as column_parallel_linear() gives it; else it is
    /// whole, and each rank takes its share
    bool input_is_parallel = false;
};

/// x W^T + b with the columns of `name`.weight (out, in) shared out: the products are summed over
/// the ranks (all_reduce), and the bias is added once, behind the sum. Gives every rank (..., out).
VKF_API Value row_parallel_linear(Value x, const std::string& name, std::int64_t in, std::int64_t out,
                                  const RowParallelLinearOptions& options = {});

/// Rows of `name` (vocabulary, width) by ids (...) i32, the table's rows shared out: a rank gives
/// zeros for ids of others, and the ranks' results are summed. An id outside the vocabulary gives
/// NaN, as embedding() does.
VKF_API Value vocab_parallel_embedding(Value ids, const std::string& name, std::int64_t vocabulary, std::int64_t width,
                                       float scale = 1.0f);

}  // namespace vkf
