// SPDX-License-Identifier: Apache-2.0
// Memory planning: from live intervals to offsets in one arena. A pure function.
// For op authors: <vkformer/advanced/planner.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../base/export.h"

namespace vkf {

/// A tensor needed in steps first..last, both included.
struct Interval {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint64_t bytes = 0;
};

struct ArenaPlan {
    /// one for each interval, each a multiple of the alignment
    std::vector<std::uint64_t> offsets;
    std::uint64_t bytes = 0;  ///< size of the arena
};

/// Places the intervals so that no two that are live in a common step overlap. Greedy in several
/// orders (by size, by length, by their product, by the first step), each into the lowest gap that
/// fits; the smallest arena wins. O(n^2).
VKF_API ArenaPlan plan_arena(std::span<const Interval> intervals, std::uint64_t alignment);

/// The largest sum of aligned sizes that are live in one step. No plan can be smaller.
VKF_API std::uint64_t peak_live_bytes(std::span<const Interval> intervals, std::uint64_t alignment);

}  // namespace vkf
