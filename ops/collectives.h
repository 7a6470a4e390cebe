// SPDX-License-Identifier: Apache-2.0
// What several ranks compute together, as ops of a graph. Every rank compiles a graph with the same
// collectives in the same order, and runs it as often (CompileOptions::communicator).
#pragma once

#include <cstdint>
#include <vector>

#include "../runtime/graph/graph.h"

namespace vkf {

/// The sum over the ranks of x (...) f32, in their order: the same bits on every rank. Its gradient
/// is that of the sum, which every rank has: what follows must be the same on all of them. PyTorch:
/// torch.distributed.all_reduce.
VKF_API Value all_reduce(Value x);

/// Gives every rank what all have: value r is (..., columns[r]), of rank r. x is (...,
/// columns[rank]) f32 or i32; of its other sizes all ranks have the same. Throws Error where the
/// graph's rank (Graph::set_rank) is none of columns.size(). PyTorch:
/// torch.distributed.all_gather.
VKF_API std::vector<Value> all_gather(Value x, const std::vector<std::int64_t>& columns);

/// Gives every rank the numbers of rank `from`: x (...) f32 or i32, of the same sizes on all.
/// Throws Error for a number below 0; one that the program's ranks do not have is found as it is
/// compiled. PyTorch: torch.distributed.broadcast.
VKF_API Value broadcast(Value x, int from = 0);

}  // namespace vkf
