// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/plan_collectives.h"

#include <algorithm>
#include <set>

namespace vkf {

namespace {

bool is_collective(const Dispatch& d) { return d.collective != Collective::none; }

/// Collectives, and the dispatches whose results they alone read.
std::vector<bool> early_ones(const std::vector<Dispatch>& lowered, const std::vector<StorageUse>& uses) {
    std::set<StorageId> exchanged, read_by_dispatches;
    for (std::size_t i = 0; i < lowered.size(); ++i) {
        (is_collective(lowered[i]) ? exchanged : read_by_dispatches).insert(uses[i].reads.begin(), uses[i].reads.end());
    }
    std::vector<bool> early;
    for (std::size_t i = 0; i < lowered.size(); ++i) {
        const std::vector<StorageId>& writes = uses[i].writes;
        early.push_back(is_collective(lowered[i]) || std::all_of(writes.begin(), writes.end(), [&](StorageId s) {
                            return exchanged.contains(s) && !read_by_dispatches.contains(s);
                        }));
    }
    return early;
}

}  // namespace

void put_collectives_early(std::vector<Dispatch>& lowered, std::vector<StorageUse>& uses) {
    if (std::none_of(lowered.begin(), lowered.end(), is_collective)) {
        return;
    }
    std::vector<Dispatch> dispatches;
    std::vector<StorageUse> their_uses;
    for (const std::uint32_t i : early_order(uses, early_ones(lowered, uses))) {
        dispatches.push_back(std::move(lowered[i]));
        their_uses.push_back(std::move(uses[i]));
    }
    lowered = std::move(dispatches);
    uses = std::move(their_uses);
}

void find_ends_of_collectives(const OrderedWork& work) {
    const auto end = static_cast<std::uint32_t>(work.entries.size());
    std::vector<std::uint32_t> next_use(work.storages, end);
    std::uint32_t next_collective = end;
    for (std::uint32_t e = end; e-- > 0;) {
        const PlannedWork& entry = work.entries[e];
        if (entry.kind == WorkKind::copy) {
            continue;  // collectives work on scratch
        }
        PlannedDispatch& d = work.dispatches[entry.index];
        if (entry.kind == WorkKind::collective) {
            d.over_before = next_collective;
            for (const Window& w : d.windows) {
                d.over_before = std::min(d.over_before, next_use[w.storage]);
            }
            next_collective = e;
        }
        for (const Window& w : d.windows) {
            next_use[w.storage] = e;
        }
    }
}

std::vector<std::uint32_t> last_steps_of_exchange(const OrderedWork& work) {
    std::vector<std::uint32_t> last(work.storages, 0);
    for (const PlannedDispatch& d : work.dispatches) {
        if (!is_collective(d.dispatch)) {
            continue;
        }
        std::uint32_t step = work.steps;
        if (d.over_before < work.entries.size() && work.entries[d.over_before].kind != WorkKind::copy) {
            step = work.dispatches[work.entries[d.over_before].index].step;
        }
        for (const Window& w : d.windows) {
            last[w.storage] = std::max(last[w.storage], step);
        }
    }
    return last;
}

std::vector<bool> exchanged_storages(const OrderedWork& work) {
    std::vector<bool> exchanged(work.storages, false);
    for (const PlannedDispatch& d : work.dispatches) {
        for (const Window& w : d.windows) {
            if (d.dispatch.collective != Collective::none) {
                exchanged[w.storage] = true;
            }
        }
    }
    return exchanged;
}

}  // namespace vkf
