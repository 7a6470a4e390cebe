// SPDX-License-Identifier: Apache-2.0
// How kernels that work row by row share rows out.
#pragma once

#include <string>

#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "shaders/common/rounds.h"

namespace vkf::support {

/// The number of invocations that work on one row, and of those in a group. On processors each
/// invocation takes a row of its own: no shared memory, no barriers. On GPUs a group shares a row,
/// so that neighbours read neighbouring elements.
struct RowGroup {
    std::uint32_t local_size;
    std::uint32_t lanes;  ///< a power of two that divides local_size

    std::uint64_t groups(std::uint64_t rows) const noexcept { return divide_up(rows, local_size / lanes); }
};

/// Throws Error where a row has too many elements even for a group.
inline RowGroup row_group(const Lowering& l, std::int64_t row_length) {
    constexpr std::int64_t kPasses = 4;  // no kernel passes over a row more often
    if (l.device().cpu()) {
        if (row_length <= shader::kMostRounds / kPasses) {
            return {16, 1};
        }
        l.check_rounds(row_length / 128 * kPasses, "a row of " + std::to_string(row_length) + " elements");
    }
    return row_length <= 256 ? RowGroup{128, 32} : RowGroup{128, 128};
}

/// Says for explain() how many invocations work on a row, and why.
inline std::string why_rows(const Capabilities& device, const RowGroup& group, bool fours = false) {
    return (device.cpu() && group.lanes == 1 ? "processor: a row an invocation"
                                             : std::to_string(group.lanes) + " invocations a row") +
           (fours ? ", by fours" : "");
}

}  // namespace vkf::support
