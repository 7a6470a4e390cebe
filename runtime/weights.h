// SPDX-License-Identifier: Apache-2.0
// Tensors that programs share: Weights (immutable) and State (outlives a run).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtype.h"
#include "export.h"

namespace vkf {

struct TensorStore;

/// One tensor of a store.
struct StoredTensor {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
    std::uint32_t block = 0;
    std::uint64_t offset = 0;  ///< in the block, bytes
    std::uint64_t bytes = 0;
};

/// Immutable once loaded; copies share the memory.
class VKF_API Weights {
public:
    Weights() = default;
    explicit Weights(std::shared_ptr<const TensorStore> store) : store_(std::move(store)) {}

    /// Null when there is no tensor of that name.
    const StoredTensor* find(std::string_view name) const;
    std::vector<std::string> names() const;
    /// Device memory held, bytes.
    std::uint64_t bytes() const;
    const std::shared_ptr<const TensorStore>& store() const noexcept { return store_; }

private:
    std::shared_ptr<const TensorStore> store_;
};

/// Tensors that outlive a run; copies share the memory. Programs that share a State must not run at the same time.
class VKF_API State {
public:
    State() = default;
    explicit State(std::shared_ptr<TensorStore> store) : store_(std::move(store)) {}

    explicit operator bool() const noexcept { return store_ != nullptr; }
    const StoredTensor* find(std::string_view name) const;
    std::uint64_t bytes() const;
    /// Sets every byte to zero; waits until it is done.
    void clear();
    const std::shared_ptr<TensorStore>& store() const noexcept { return store_; }

private:
    std::shared_ptr<TensorStore> store_;
};

}  // namespace vkf
