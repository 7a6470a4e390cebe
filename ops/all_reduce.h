// SPDX-License-Identifier: Apache-2.0
// Of the ops that several ranks compute together, what others need.
#pragma once

#include "runtime/graph/op.h"

namespace vkf::support {

/// The node that all_reduce() makes.
extern const OpType kAllReduce;
/// True for what ranks compute together.
bool is_collective(const OpType* op);

}  // namespace vkf::support
