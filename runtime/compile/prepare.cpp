// SPDX-License-Identifier: Apache-2.0
// A planned dispatch at given sizes. Every frame of a host comes through here.
#include <algorithm>
#include <array>

#include "runtime/compile/plan.h"

namespace vkf {

namespace {

/// False when a size came out negative.
bool evaluate(const ValueInfo& value, const Window& window, std::uint32_t element_bytes,
              std::span<const std::int64_t> symbols, View& out) noexcept {
    const std::size_t rank = value.shape.size();
    const std::size_t lead = kMaxRank - rank;
    for (std::size_t i = 0; i < lead; ++i) {
        out.size[i] = 1;
        out.stride[i] = 0;
    }
    bool good = true;
    for (std::size_t i = 0; i < rank; ++i) {
        const std::int64_t size = value.shape[i].eval(symbols);
        good = good && size >= 0;
        out.size[lead + i] = static_cast<std::uint32_t>(size);
        out.stride[lead + i] = static_cast<std::uint32_t>(value.strides[i].eval(symbols));
    }
    out.offset =
        static_cast<std::uint32_t>(value.offset.eval(symbols) - static_cast<std::int64_t>(window.base / element_bytes));
    out.rank = static_cast<std::uint32_t>(rank);
    return good;
}

}  // namespace

bool Plan::prepare(const PlannedDispatch& planned, std::span<const std::int64_t> sizes,
                   Command& command) const noexcept {
    const Dispatch& d = planned.dispatch;
    std::array<View, kMaxOperands> views;
    const std::size_t bound = d.bindings.size();
    const std::size_t count = bound + d.sizes_of.size();
    for (std::size_t i = 0; i < count; ++i) {
        const ValueInfo& value = values[i < bound ? d.bindings[i].value : d.sizes_of[i - bound]];
        // An operand that is not bound is read for its sizes only.
        const Window& window = planned.windows[std::min(i, bound - 1)];
        if (!evaluate(value, window, size_of(storages[value.storage].dtype), sizes, views[i])) {
            return false;
        }
    }
    d.prepare({{views.data(), count}, nodes[d.node].params.get(), d.words, sizes}, command);
    return true;
}

}  // namespace vkf
