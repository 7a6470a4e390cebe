// SPDX-License-Identifier: Apache-2.0
#include "ops/row_group.h"

#include <algorithm>
#include <bit>

#include "ops/checks.h"
#include "ops/left_out.h"
#include "ops/variants.h"

namespace vkf {

namespace {

/// Rows of up to so many fours share groups.
constexpr std::uint32_t kShortRowFours = 64;
/// What an invocation has of a long row. More in registers takes waves off a GPU; without these,
/// more invocations only leave more to be added up.
constexpr std::uint32_t kFoursHeld = 2, kFoursLooped = 8;

}  // namespace

bool support::takes_gpu_rows(const Capabilities& device) {
    return !device.cpu() || asks_for(device, kRowsBySubgroups) || asks_for(device, kRowsHeld) ||
           asks_for(device, kRowsLooped);
}

bool support::rows_by_subgroups(const Lowering& l, const char* kernel) {
    const Capabilities& device = l.device();
    const bool can = device.subgroup_arithmetic && device.subgroup_shuffle;
    if (asks_for(device, kRowsBySubgroups) && !can) {
        fail(l.node().op->name, std::string("VKFORMER_VARIANT asks for ") + kRowsBySubgroups +
                                    ", which needs arithmetic and shuffles of subgroups");
    }
    const bool left = !left_out(device, l.node().op->name, kernel, kRowsBySubgroups).empty();
    return can && !left && !asks_for(device, kRowsHeld) && !asks_for(device, kRowsLooped);
}

std::uint32_t support::most_row_lanes(const Capabilities& device) {
    return std::bit_floor(std::min({device.max_invocations, device.max_group_size[0], 1024u}));
}

support::RowGroup support::held_row_group(const Lowering& l, std::int64_t row_length, std::int64_t most_held,
                                          const char* kernel) {
    const Capabilities& device = l.device();
    if (!takes_gpu_rows(device) || asks_for(device, kRowsLooped)) {
        RowGroup group = row_group(l, row_length);
        if (takes_gpu_rows(device) && group.lanes == 1) {
            group = gpu_row_group(row_length);
        }
        return group;
    }
    const bool subgroups = rows_by_subgroups(l, kernel);
    const auto fours = static_cast<std::uint32_t>(divide_up(static_cast<std::uint64_t>(row_length), 4));
    const auto wanted = std::bit_ceil(
        static_cast<std::uint32_t>(divide_up(fours, row_length <= most_held ? kFoursHeld : kFoursLooped)));
    const auto with = [&](std::uint32_t local_size, std::uint32_t lanes) {
        const auto held = std::max(static_cast<std::uint32_t>(divide_up(fours, lanes)), 1u);
        return RowGroup{local_size, lanes, row_length <= most_held && held <= shader::kMostHeld ? held : 0, subgroups};
    };
    if (fours <= kShortRowFours) {
        return with(shader::kMaxRowGroup, std::clamp(wanted, 8u, 16u));
    }
    const std::uint32_t most = subgroups ? most_row_lanes(device) : shader::kMaxRowGroup;
    const std::uint32_t lanes =
        std::clamp(wanted, std::clamp(std::bit_ceil(device.subgroup_size), 64u, shader::kMaxRowGroup), most);
    const RowGroup group = with(lanes, lanes);
    l.check_rounds(row_length / lanes * 4, "a row of " + std::to_string(row_length) + " elements");
    return group;
}

std::string support::why_rows(const Capabilities& device, const RowGroup& group, bool fours) {
    return (device.cpu() && group.lanes == 1 ? "processor: a row an invocation"
                                             : std::to_string(group.lanes) + " invocations a row") +
           (fours ? ", by fours" : "") + (group.held != 0 ? ", in registers" : "") +
           (group.subgroups ? ", sums by subgroups" : "");
}

}  // namespace vkf
