// SPDX-License-Identifier: Apache-2.0
// The tiles of matmul_shared.
#pragma once

#include <cstdint>

namespace vkf::support {

/// Their columns, and how deep they are.
inline constexpr std::uint32_t kSharedColumns = 64, kSharedDepth = 16;
/// Rows of a tall tile, which takes as many invocations as one of half the rows; and the most
/// columns that it may have, by the same number of invocations.
inline constexpr std::uint32_t kTallTile = 128, kWideColumns = 128;

/// Shared memory of a tile, in bytes.
inline std::uint32_t shared_tile_bytes(std::uint32_t rows, std::uint32_t depth,
                                       std::uint32_t columns = kSharedColumns) {
    return (rows + columns + 8) * depth * 4;
}
/// Invocations of a tile of kTallTile by kWideColumns, 8x8 each.
inline constexpr std::uint32_t kWideInvocations = kTallTile * kWideColumns / 64;

}  // namespace vkf::support
