// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/schedule.h"

#include <algorithm>

namespace vkf {

Schedule make_schedule(std::span<const StorageUse> uses, std::uint32_t window) {
    const auto count = static_cast<std::uint32_t>(uses.size());
    std::uint32_t storages = 0;
    for (const StorageUse& u : uses) {
        for (const auto* list : {&u.reads, &u.writes}) {
            for (const std::uint32_t s : *list) {
                storages = std::max(storages, s + 1);
            }
        }
    }
    // predecessors by program order: the last writer, and for writers the readers since
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
