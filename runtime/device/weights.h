// SPDX-License-Identifier: Apache-2.0
// Trained parameters in device memory, shared by programs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/export.h"
#include "../compile/load_options.h"
#include "../compile/weight_layout.h"
#include "../graph/dtype.h"
#include "../graph/host_tensor.h"

namespace vkf {

struct TensorStore;

/// Weights are immutable once loaded; copies share the memory.
class VKF_API Weights {
public:
    Weights() = default;

    /// Names, types, shapes and places.
    const WeightLayout& layout() const noexcept;
    /// Null when there is no tensor of that name.
    const StoredTensor* find(std::string_view name) const;
    std::vector<std::string> names() const;
    /// Device memory held, bytes.
    std::uint64_t bytes() const;
    /// The part of these bytes that floating tensors kept as this type take.
    std::uint64_t bytes(WeightType type) const;
    /// The part of these bytes that the device itself packed.
    std::uint64_t bytes_packed_on_device() const;

private:
    friend struct Insides;
    explicit Weights(std::shared_ptr<const TensorStore> store) : store_(std::move(store)) {}

    std::shared_ptr<const TensorStore> store_;
};

}  // namespace vkf
