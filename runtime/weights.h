// SPDX-License-Identifier: Apache-2.0
// Tensors that programs share: Weights (immutable) and State (outlives a run).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtype.h"
#include "export.h"
#include "host_tensor.h"
#include "packed.h"

namespace vkf {

class Graph;
struct TensorStore;

/// Which processor packs matrices.
enum class PackOn : std::uint8_t {
    by_device,  ///< the device where it is a discrete, integrated or virtual GPU with a queue of ours; else the host
    host,
    device,  ///< Error where there is no queue of ours
};

/// What Device::load() makes of tensors on their way.
struct LoadOptions {
    /// What matrices (rank 2, floating) are kept as. Empty: what the file has, f32, f16 or bf16. Of a matrix that comes packed another
    /// type than its own is an Error.
    std::optional<WeightType> matrices = {};
    /// Asked for each matrix that is not packed yet in turn, when set: `matrices` for those it answers nothing for.
    std::function<std::optional<WeightType>(const HostTensor&)> choose = {};
    /// Who packs them; the words are the same. What is packed already, or of that type in the file, is copied by the host.
    PackOn pack_on = PackOn::by_device;
    /// Told now and then how many of all bytes are on the device, when set; at the end they are equal.
    std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
    /// Tensors lie in memory as they are given; or, when set, in the order in which this graph names its weights, and what it does not name
    /// behind them: so that projections() finds its own behind each other.
    const Graph* order = nullptr;
};

/// One tensor of a store.
struct StoredTensor {
    std::string name;
    DType dtype = DType::f32;  ///< of its numbers to graphs
    std::vector<std::int64_t> shape;
    std::uint32_t block = 0;
    std::uint64_t offset = 0;  ///< in the block, bytes
    std::uint64_t bytes = 0;
    WeightType type = WeightType::f32;  ///< of weights that are F32 to graphs: how they lie in memory
    bool packed_on_device = false;
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
    /// Of that, what floating tensors kept as this type take.
    std::uint64_t bytes(WeightType type) const;
    /// And what the device itself packed.
    std::uint64_t bytes_packed_on_device() const;
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
    /// Sets every byte to zero; waits until it is done, or on a device without a queue notes it for record_upload().
    void clear();
    const std::shared_ptr<TensorStore>& store() const noexcept { return store_; }

private:
    std::shared_ptr<TensorStore> store_;
};

}  // namespace vkf
