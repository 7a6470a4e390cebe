// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/state.h"

#include "runtime/device/deferred.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

const StoredTensor* State::find(std::string_view name) const { return store_ ? store_->layout.find(name) : nullptr; }

std::uint64_t State::bytes() const { return store_ ? store_->layout.bytes() : 0; }

void State::clear() {
    if (!store_) {
        return;
    }
    if (const auto& deferred = store_->core->deferred) {  // in order with what the host records, wherever the memory is
        for (const Block& b : store_->blocks) {
            deferred->zero(b.buffer(), 0, b.bytes());
        }
        store_->uploads_before = deferred->noted();
        return;
    }
    store_->zero();
}

}  // namespace vkf
