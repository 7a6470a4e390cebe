// SPDX-License-Identifier: Apache-2.0
// Arithmetic of sizes.
#pragma once

#include <cstdint>

namespace vkf {

/// The smallest multiple of `alignment` that is not below `n`.
constexpr std::uint64_t align_up(std::uint64_t n, std::uint64_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

/// n / by, rounded up.
constexpr std::uint64_t divide_up(std::uint64_t n, std::uint64_t by) { return (n + by - 1) / by; }

}  // namespace vkf
