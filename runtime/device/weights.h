// SPDX-License-Identifier: Apache-2.0
// Trained parameters in device memory, shared by programs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../base/export.h"
#include "../compile/weight_layout.h"
#include "../graph/dtype.h"
#include "../graph/host_tensor.h"

namespace vkf {

struct TensorStore;

/// Which processor packs matrices.
enum class PackOn : std::uint8_t {
    /// the device where it is a discrete, integrated or virtual GPU with a queue of ours; else the
    /// host
    by_device,
    host,
    device,  ///< Error where there is no queue of ours
};

/// What Device::load() makes of tensors on their way.
struct LoadOptions {
    /// What matrices (rank 2, floating) are kept as. Empty: what the file has, f32, f16 or bf16. Of
    /// a matrix that comes packed another type than its own is an Error.
    std::optional<WeightType> matrices = {};
    /// Asked for each matrix that is not packed yet in turn, when set: `matrices` for those it
    /// answers nothing for.
    std::function<std::optional<WeightType>(const HostTensor&)> choose = {};
    /// Who packs them; the words are the same. What is packed already, or of that type in the file,
    /// is copied by the host.
    PackOn pack_on = PackOn::by_device;
    /// Progress: called with the bytes uploaded and the bytes in all, which are equal at the end.
    std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

/// Immutable once loaded; copies share the memory.
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
    /// Of that, what floating tensors kept as this type take.
    std::uint64_t bytes(WeightType type) const;
    /// And what the device itself packed.
    std::uint64_t bytes_packed_on_device() const;

private:
    friend struct Insides;
    explicit Weights(std::shared_ptr<const TensorStore> store) : store_(std::move(store)) {}

    std::shared_ptr<const TensorStore> store_;
};

}  // namespace vkf
