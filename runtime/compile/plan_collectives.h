// SPDX-License-Identifier: Apache-2.0
// Where a plan's collectives stand: as early as what they exchange is there, so that dispatches run
// while ranks exchange.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/compile/planned.h"
#include "runtime/compile/schedule.h"

namespace vkf {

/// Puts collectives where what they exchange is there, and what only makes that ready with them.
void put_collectives_early(std::vector<Dispatch>& lowered, std::vector<StorageUse>& uses);

/// The work of a plan of so many storages, in the order it is recorded.
struct OrderedWork {
    std::span<const PlannedWork> entries;
    std::span<PlannedDispatch> dispatches;
    std::size_t storages = 0;
    std::uint32_t steps = 0;
};

/// Finds PlannedDispatch::over_before of the collectives: the next entry that touches what one
/// exchanges, or is a collective.
void find_ends_of_collectives(const OrderedWork& work);

/// The step up to which each storage is kept for the collectives that exchange it; 0 for others.
std::vector<std::uint32_t> last_steps_of_exchange(const OrderedWork& work);

/// The storages that collectives read or write.
std::vector<bool> exchanged_storages(const OrderedWork& work);

}  // namespace vkf
