// SPDX-License-Identifier: Apache-2.0
// The inputs of attention as its fused kernels read them, and those of its gradient.
#pragma once

#include "ops/attention_params.h"
#include "ops/sequence_table.h"
#include "runtime/compile/lowering.h"

namespace vkf::support {

/// The value, or a copy of it with rows of unit stride.
ValueId with_rows(Lowering& l, ValueId v);
/// The value, or a copy of it that lies densely from its first element on.
ValueId whole(Lowering& l, ValueId v);
/// The mask, which is an input of the node, as bits, in scratch.
ValueId pack_mask(Lowering& l, const AttentionParams& params);
/// The node's sequences with lengths of their own, for tiles of so many rows, `group` a query.
SequenceTable sequences_of(const Lowering& l, const AttentionParams& params, std::uint32_t rows = 1,
                           std::uint32_t group = 1);

}  // namespace vkf::support
