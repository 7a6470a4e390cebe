// SPDX-License-Identifier: Apache-2.0
// The kernel that packs rows of numbers, and how many invocations pack one: of weights as they are
// loaded, and of activations as codes.
#pragma once

#include <string>

#include "packed_rows.spv.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/kernel.h"
#include "runtime/compile/lowering.h"

namespace vkf {

/// One object for all that pack: pipelines are found by its address.
inline const Shader kPackedRows{"packed_rows", spirv::kPackedRowsSpirv};

inline constexpr std::uint32_t kPackGroup = 64;  ///< invocations of a work group

/// The lanes that pack a row: one, or a whole group. Throws Error where a row has too many columns
/// even for a group.
inline std::uint32_t pack_lanes(const Lowering& l, std::int64_t columns) {
    constexpr std::int64_t kRowAnInvocation = 8192;  // columns, at most, on processors
    // rounds of loops that a number of the row takes
    constexpr std::int64_t kRoundsANumber = 7;
    const std::uint32_t lanes = l.device().cpu() && columns <= kRowAnInvocation ? 1 : kPackGroup;
    l.check_rounds(kRoundsANumber * static_cast<std::int64_t>(divide_up(static_cast<std::uint64_t>(columns), lanes)),
                   "rows of " + std::to_string(columns) + " numbers");
    return lanes;
}

/// The number of work groups for so many rows.
constexpr std::uint64_t pack_groups(std::uint32_t lanes, std::uint64_t rows) {
    return lanes > 1 ? rows : divide_up(rows, kPackGroup);
}

}  // namespace vkf
