// SPDX-License-Identifier: Apache-2.0
// How often this process did what is to be done once; tests look.
#pragma once

#include <atomic>
#include <cstdint>

namespace vkf::made {

inline std::atomic<std::uint64_t> plans = 0;
inline std::atomic<std::uint64_t> weight_orders = 0;   ///< weight_order() rewrites a graph for each
inline std::atomic<std::uint64_t> weight_layouts = 0;  ///< and of states

}  // namespace vkf::made
