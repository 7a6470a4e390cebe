// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "ops/ops.h"

namespace vkf {

/// rope_table() as a constant (max_positions, r/2, 2) of the graph, for rope_by_table(). It is
/// computed when a program gets its memory, and equal ones of a name are one. Throws where rope()
/// does.
Value table_of_angles(Graph& graph, const std::string& name, const Rope& options, std::int64_t head_dim);

}  // namespace vkf
