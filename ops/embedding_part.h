// SPDX-License-Identifier: Apache-2.0
// A lookup in a part of a table.
#pragma once

#include "ops/ops.h"

namespace vkf {

/// embedding() in rows `first` on of a table of `whole` rows, of which `table` has these. Gives
/// zeros for ids of other rows. It has no gradient.
Value embedding_part(Value ids, Value table, float scale, std::int64_t first, std::int64_t whole);

}  // namespace vkf
