// SPDX-License-Identifier: Apache-2.0
// How often this process did what is to be done once; tests look.
#pragma once

#include <atomic>
#include <cstdint>

namespace vkf {

struct MadeCounts {
    std::atomic<std::uint64_t> graphs = 0;  ///< graphs, clones not counted
    std::atomic<std::uint64_t> plans = 0;
    std::atomic<std::uint64_t> weight_orders = 0;   ///< weight_order() rewrites a graph for each
    std::atomic<std::uint64_t> weight_layouts = 0;  ///< layouts of weights and of states
};

inline MadeCounts made_counts;

}  // namespace vkf
