// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/weight_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/made.h"
#include "runtime/base/numbers.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

WeightType type_of(const HostTensor& t, std::optional<WeightType> matrices) {
    if (t.type == WeightType::f32) {
        return packable(t) ? matrices.value_or(kept_as(t.dtype)) : WeightType::f32;
    }
    if (matrices && *matrices != t.type) {
        throw Error(
            "is packed as " + std::string(name_of(t.type)) + "; " + std::string(name_of(*matrices)) + " was asked for",
            "weight " + t.name);
    }
    return t.type;
}

}  // namespace

WeightLayout::WeightLayout(std::vector<StoredTensor> tensors, std::uint64_t alignment, std::uint64_t max_block,
                           const char* what)
    : tensors_(std::move(tensors)) {
    ++made_counts.weight_layouts;
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

const WeightLayout& WeightLayout::none() {
    static const WeightLayout layout({}, 1, 1);
    return layout;
}

StoredTensor stored_as(const HostTensor& tensor, std::optional<WeightType> matrices) {
    const auto bytes = byte_size(tensor);
    if (!bytes) {
        throw Error("has a shape whose bytes cannot be counted", "weight " + tensor.name);
    }
    StoredTensor out{tensor.name, tensor.dtype, tensor.shape, 0, 0, *bytes, type_of(tensor, matrices)};
    if (out.type != WeightType::f32) {
        out.dtype = DType::f32;
        out.bytes = static_cast<std::uint64_t>(tensor.shape[0]) *
                    packed_row_words(out.type, static_cast<std::uint64_t>(tensor.shape[1])) * sizeof(std::uint32_t);
    } else if (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) {
        out.dtype = DType::f32;
        out.bytes = *bytes * 2;
    }
    return out;
}

WeightLayout make_weight_layout(std::span<const HostTensor> tensors, const Capabilities& device,
                                const LoadOptions& options) {
    std::vector<StoredTensor> stored;
    for (const HostTensor& t : tensors) {
        const bool asked = options.choose && t.type == WeightType::f32 && packable(t);
        const std::optional<WeightType> chosen = asked ? options.choose(t) : std::nullopt;
        stored.push_back(stored_as(t, chosen ? chosen : options.matrices));
    }
    return WeightLayout(std::move(stored), device.storage_alignment, device.max_allocation);
}

}  // namespace vkf
