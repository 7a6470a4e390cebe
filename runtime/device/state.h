// SPDX-License-Identifier: Apache-2.0
// Tensors that outlive a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "../base/export.h"
#include "../compile/weight_layout.h"

namespace vkf {

struct TensorStore;

/// Tensors that outlive a run; copies share the memory. Programs that share a State must not run at the same time.
class VKF_API State {
public:
    State() = default;
    explicit State(std::shared_ptr<TensorStore> store) : store_(std::move(store)) {}

    explicit operator bool() const noexcept { return store_ != nullptr; }
    const StoredTensor* find(std::string_view name) const;
    std::uint64_t bytes() const;
    /// Sets every byte to zero; waits until it is done, or on a device without a queue notes it for record_upload().
    void clear();
    const std::shared_ptr<TensorStore>& store() const noexcept { return store_; }

private:
    std::shared_ptr<TensorStore> store_;
};

}  // namespace vkf
