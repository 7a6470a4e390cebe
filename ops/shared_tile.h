// SPDX-License-Identifier: Apache-2.0
// The tiles of matmul_shared.
#pragma once

#include <cstdint>

namespace vkf::support {

/// Their columns, and how deep they are.
inline constexpr std::uint32_t kSharedColumns = 64, kSharedDepth = 16;

/// Shared memory of a tile, in bytes.
inline std::uint32_t shared_tile_bytes(std::uint32_t rows, std::uint32_t depth) {
    return (rows + kSharedColumns + 8) * depth * 4;
}

}  // namespace vkf::support
