// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/plan_collectives.h"

#include <algorithm>

namespace vkf {

void put_collectives_early(std::vector<Dispatch>& lowered, std::vector<StorageUse>& uses) {
    std::vector<bool> early, exchanged, wanted_elsewhere;
    const auto note = [](std::vector<bool>& flags, StorageId s) {
        flags.resize(std::max<std::size_t>(flags.size(), s + std::size_t{1}), false);
        flags[s] = true;
    };
    for (std::size_t i = 0; i < lowered.size(); ++i) {
        for (const StorageId s : uses[i].reads) {
            note(lowered[i].collective == Collective::none ? wanted_elsewhere : exchanged, s);
        }
    }
    const auto is_in = [](const std::vector<bool>& flags, StorageId s) { return s < flags.size() && flags[s]; };
    for (std::size_t i = 0; i < lowered.size(); ++i) {
        early.push_back(lowered[i].collective != Collective::none ||
                        std::all_of(uses[i].writes.begin(), uses[i].writes.end(),
                                    [&](StorageId s) { return is_in(exchanged, s) && !is_in(wanted_elsewhere, s); }));
    }
    if (exchanged.empty()) {
        return;
    }
    std::vector<Dispatch> dispatches;
    std::vector<StorageUse> their_uses;
    for (const std::uint32_t i : early_order(uses, early)) {
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
        if (d.dispatch.collective == Collective::none) {
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
