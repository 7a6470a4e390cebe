// SPDX-License-Identifier: Apache-2.0
// How weights are loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "../graph/dtype.h"
#include "../graph/host_tensor.h"

namespace vkf {

/// Which processor packs matrices.
enum class PackOn : std::uint8_t {
    /// the device where it is a discrete, integrated or virtual GPU with a queue of ours; else the
    /// host
    by_device,
    host,
    device,  ///< Error where there is no queue of ours
};

/// What Device::load() makes of tensors on their way, and make_weight_layout() tells before.
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

}  // namespace vkf
