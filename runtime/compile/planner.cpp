// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/planner.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "runtime/base/numbers.h"

namespace vkf {

namespace {

ArenaPlan place(std::span<const Interval> intervals, const std::vector<std::size_t>& order, std::uint64_t alignment) {
    ArenaPlan plan;
    plan.offsets.resize(intervals.size());
    std::vector<std::size_t> placed;  // sorted by offset
    for (const std::size_t i : order) {
        const std::uint64_t size = align_up(intervals[i].bytes, alignment);
        std::uint64_t offset = 0;
        for (const std::size_t j : placed) {
            if (intervals[j].last < intervals[i].first || intervals[i].last < intervals[j].first) {
                continue;
            }
            if (plan.offsets[j] >= offset + size) {
                break;  // the gap before j is wide enough, and later ones start higher still
            }
            offset = std::max(offset, plan.offsets[j] + align_up(intervals[j].bytes, alignment));
        }
        plan.offsets[i] = offset;
        plan.bytes = std::max(plan.bytes, offset + size);
        const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                         [&](std::uint64_t o, std::size_t j) { return o < plan.offsets[j]; });
        placed.insert(at, i);
    }
    return plan;
}

}  // namespace

ArenaPlan plan_arena(std::span<const Interval> intervals, std::uint64_t alignment) {
    using Key = std::function<std::uint64_t(const Interval&)>;
    const auto length = [](const Interval& v) { return static_cast<std::uint64_t>(v.last - v.first) + 1; };
    const Key keys[] = {
        [](const Interval& v) { return v.bytes; },
        length,
        [&](const Interval& v) { return v.bytes * length(v); },
        [](const Interval& v) { return ~std::uint64_t{v.first}; },
    };
    ArenaPlan best;
    std::vector<std::size_t> order(intervals.size());
    for (const Key& key : keys) {
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            const std::uint64_t x = key(intervals[a]);
            const std::uint64_t y = key(intervals[b]);
            const std::uint64_t m = intervals[a].bytes, n = intervals[b].bytes;
            return x != y ? x > y : m != n ? m > n : a < b;
        });
        ArenaPlan plan = place(intervals, order, alignment);
        if (best.offsets.empty() || plan.bytes < best.bytes) {
            best = std::move(plan);
        }
    }
    return best;
}

std::uint64_t peak_live_bytes(std::span<const Interval> intervals, std::uint64_t alignment) {
    std::uint32_t steps = 0;
    for (const Interval& v : intervals) {
        steps = std::max(steps, v.last + 1);
    }
    std::vector<std::uint64_t> live(steps, 0);
    for (const Interval& v : intervals) {
        for (std::uint32_t s = v.first; s <= v.last; ++s) {
            live[s] += align_up(v.bytes, alignment);
        }
    }
    return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

}  // namespace vkf
