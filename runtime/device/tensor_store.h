// SPDX-License-Identifier: Apache-2.0
// Named tensors in device memory: what Weights and States stand on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/compile/weight_layout.h"
#include "runtime/device/device_core.h"
#include "runtime/device/memory.h"
#include "runtime/graph/graph.h"

namespace vkf {

struct TensorStore {
    /// Makes memory for the layout, with nothing in it.
    TensorStore(std::shared_ptr<DeviceCore> device, WeightLayout tensors, const std::string& purpose);
    /// Fills all blocks, at once where the host sees the memory.
    void zero();

    std::shared_ptr<DeviceCore> core;
    WeightLayout layout;
    std::vector<Block> blocks;
    /// how often programs have a tensor, whose runs may use it
    std::atomic<std::uint32_t> bound = 0;
    /// Bytes of weights that the device itself packed.
    std::uint64_t packed_on_device = 0;
    /// the number Deferred must have done before these are there
    std::atomic<std::uint64_t> uploads_before = 0;
};

/// The bytes of a dense tensor. Throws Error where a size is negative, or they are more than can be
/// counted.
std::uint64_t tensor_bytes(std::span<const std::int64_t> shape, DType dtype);

/// Makes zeroed memory for the states among these storages. Throws Error naming a state that two
/// graphs want with different shapes or types.
std::shared_ptr<TensorStore> make_state_store(const std::shared_ptr<DeviceCore>& core,
                                              std::span<const StorageInfo> storages);

}  // namespace vkf
