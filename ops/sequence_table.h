// SPDX-License-Identifier: Apache-2.0
// The table by which kernels know sequences with lengths of their own.
#pragma once

#include "runtime/compile/lowering.h"

namespace vkf {

struct SequenceTable {
    ValueId queries = 0;  ///< (N+1) cumulative numbers, when packed
    ValueId keys = 0;     ///< (N+1) cumulative numbers, when packed, or (N) lengths
    bool packed_queries = false, packed_keys = false;
    /// whose sizes bound them: (B, H, L, d), (B, Hk, S, d) or a pool, (B, W)
    ValueId query = 0, key = 0, pages = 0;
    bool paged = false;
    std::uint32_t rows = 1;   ///< rows of a tile
    std::uint32_t group = 1;  ///< rows a query
};

/// Emits the dispatch that makes it, in scratch: see shaders/attention_sequences.h. A row more than
/// sequences are given, when packed.
ValueId make_sequence_table(Lowering& l, const SequenceTable& t);

}  // namespace vkf
