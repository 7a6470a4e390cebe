// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/schedule.h"

#include <algorithm>
#include <set>

namespace vkf {

namespace {

/// The dispatches that each comes after, by the order given: the last writer of what it touches,
/// and where it writes, the readers since.
std::vector<std::vector<std::uint32_t>> predecessors(std::span<const StorageUse> uses) {
    const auto count = static_cast<std::uint32_t>(uses.size());
    std::uint32_t storages = 0;
    for (const StorageUse& u : uses) {
        for (const auto* list : {&u.reads, &u.writes}) {
            for (const std::uint32_t s : *list) {
                storages = std::max(storages, s + 1);
            }
        }
    }
    std::vector<std::vector<std::uint32_t>> before(count);
    std::vector<std::uint32_t> writer(storages, count);
    std::vector<std::vector<std::uint32_t>> readers(storages);
    for (std::uint32_t i = 0; i < count; ++i) {
        for (const std::uint32_t s : uses[i].reads) {
            if (writer[s] != count) {
                before[i].push_back(writer[s]);
            }
        }
        for (const std::uint32_t s : uses[i].writes) {
            if (writer[s] != count) {
                before[i].push_back(writer[s]);
            }
            before[i].insert(before[i].end(), readers[s].begin(), readers[s].end());
        }
        for (const std::uint32_t s : uses[i].reads) {
            readers[s].push_back(i);
        }
        for (const std::uint32_t s : uses[i].writes) {
            writer[s] = i;
            readers[s].clear();
        }
    }
    return before;
}

}  // namespace

std::vector<std::uint32_t> early_order(std::span<const StorageUse> uses, const std::vector<bool>& early) {
    const std::vector<std::vector<std::uint32_t>> before = predecessors(uses);
    std::vector<std::vector<std::uint32_t>> after(uses.size());
    std::vector<std::size_t> waits_for(uses.size());
    for (std::uint32_t i = 0; i < uses.size(); ++i) {
        waits_for[i] = before[i].size();
        for (const std::uint32_t p : before[i]) {
            after[p].push_back(i);
        }
    }
    std::vector<std::uint32_t> order;
    std::vector<bool> placed(uses.size(), false);
    std::set<std::uint32_t> ready;
    const auto place = [&](std::uint32_t i) {
        placed[i] = true;
        order.push_back(i);
        for (const std::uint32_t next : after[i]) {
            if (--waits_for[next] == 0 && early[next]) {
                ready.insert(next);
            }
        }
    };
    for (std::uint32_t i = 0; i < uses.size(); ++i) {
        if (!placed[i]) {
            place(i);
        }
        while (!ready.empty()) {
            place(ready.extract(ready.begin()).value());
        }
    }
    return order;
}

Schedule make_schedule(std::span<const StorageUse> uses, std::uint32_t window) {
    const auto count = static_cast<std::uint32_t>(uses.size());
    const std::vector<std::vector<std::uint32_t>> before = predecessors(uses);
    Schedule out;
    std::vector<std::uint32_t> step_of(count, count);  // count: not yet placed
    std::uint32_t oldest = 0;
    while (oldest < count) {
        const std::uint32_t step = out.steps++;
        for (std::uint32_t i = oldest; i < std::min(count, oldest + window); ++i) {
            const bool ready =
                step_of[i] == count && std::all_of(before[i].begin(), before[i].end(),
                                                   [&](std::uint32_t p) { return p == i || step_of[p] < step; });
            if (ready) {
                step_of[i] = step;
                out.order.push_back(i);
                out.step.push_back(step);
            }
        }
        while (oldest < count && step_of[oldest] != count) {
            ++oldest;
        }
    }
    return out;
}

}  // namespace vkf
