// SPDX-License-Identifier: Apache-2.0
// How weights are loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "../graph/dtype.h"
#include "../graph/host_tensor.h"

namespace vkf {

/// The side that packs matrices.
enum class PackOn : std::uint8_t {
    /// the device, where it is a discrete, integrated or virtual GPU and the host does not submit
    /// for it (BorrowedDevice::host_submits); else the host
    by_device,
    host,
    device,  ///< an Error where the host submits
};

/// A function for progress: called with what is done and what there is to do in all.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// Options for what Device::load() turns tensors into. make_weight_layout() says the result in
/// advance.
struct LoadOptions {
    /// The type that matrices (rank 2, floating) are kept as. Empty: that of the file, f32, f16 or
    /// bf16. For a matrix that is packed already, another type than its own is an Error.
    std::optional<WeightType> matrices = {};
    /// A function that, when set, is called for each matrix that is not packed yet, in turn. Where
    /// it returns nothing, `matrices` counts.
    std::function<std::optional<WeightType>(const HostTensor&)> choose = {};
    /// The side that packs matrices; the words are the same either way. The host copies what is
    /// packed already or has that type in the file.
    PackOn pack_on = PackOn::by_device;
    /// A function that is called with the bytes uploaded and the bytes in all, which are equal at
    /// the end.
    LoadProgress progress = {};
};

}  // namespace vkf
