// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/weight_layout.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/numbers.h"

namespace vkf {

WeightLayout::WeightLayout(std::vector<StoredTensor> tensors, std::uint64_t alignment, std::uint64_t max_block,
                           const char* what)
    : tensors_(std::move(tensors)) {
    for (StoredTensor& t : tensors_) {
        const std::uint64_t bytes = align_up(std::max<std::uint64_t>(t.bytes, 1), alignment);
        if (blocks_.empty() || blocks_.back() + bytes > max_block) {
            blocks_.push_back(0);
        }
        t.block = static_cast<std::uint32_t>(blocks_.size() - 1);
        t.offset = blocks_.back();
        blocks_.back() += bytes;
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    const auto twice =
        std::adjacent_find(tensors_.begin(), tensors_.end(),
                           [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
    if (twice != tensors_.end()) {
        throw Error("is given twice", std::string(what) + " " + twice->name);
    }
}

const StoredTensor* WeightLayout::find(std::string_view name) const {
    const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                     [](const StoredTensor& t, std::string_view n) { return t.name < n; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

std::uint64_t WeightLayout::bytes() const noexcept {
    return std::accumulate(blocks_.begin(), blocks_.end(), std::uint64_t{0});
}

}  // namespace vkf
