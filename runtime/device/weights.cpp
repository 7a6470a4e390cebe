// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/weights.h"

#include "runtime/device/tensor_store.h"

namespace vkf {

const WeightLayout& Weights::layout() const noexcept { return store_ ? store_->layout : WeightLayout::none(); }

const StoredTensor* Weights::find(std::string_view name) const { return layout().find(name); }

std::vector<std::string> Weights::names() const {
    std::vector<std::string> out;
    for (const StoredTensor& t : layout().tensors()) {
        out.push_back(t.name);
    }
    return out;
}

std::uint64_t Weights::bytes() const { return layout().bytes(); }

std::uint64_t Weights::bytes(WeightType type) const {
    std::uint64_t sum = 0;
    for (const StoredTensor& t : layout().tensors()) {
        sum += t.dtype == DType::f32 && t.type == type ? t.bytes : 0;
    }
    return sum;
}

std::uint64_t Weights::bytes_packed_on_device() const { return store_ ? store_->packed_on_device : 0; }

}  // namespace vkf
