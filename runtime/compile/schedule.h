// SPDX-License-Identifier: Apache-2.0
// Order of dispatches: groups ("steps") of independent ones with a barrier between groups. A pure
// function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vkf {

/// The storages that a dispatch touches.
struct StorageUse {
    std::vector<std::uint32_t> reads, writes;
};

struct Schedule {
    std::vector<std::uint32_t> order;  ///< dispatch indices as they are recorded
    std::vector<std::uint32_t> step;   ///< step of order[i]; a barrier stands where it grows
    std::uint32_t steps = 0;
};

/// The order in which `early` ones come as soon as what they wait for has come, and the others as
/// given.
std::vector<std::uint32_t> early_order(std::span<const StorageUse> uses, const std::vector<bool>& early);

/// Dispatches that depend on each other (one writes what the other reads or writes) keep their
/// order and get different steps. Independent ones within `window` of the oldest waiting one are
/// drawn together; the window keeps tensors from being made long before they are wanted.
Schedule make_schedule(std::span<const StorageUse> uses, std::uint32_t window = 8);

}  // namespace vkf
