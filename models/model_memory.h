// SPDX-License-Identifier: Apache-2.0
// The device memory that a model takes, by kind.
#pragma once

#include <cstdint>

#include "../runtime/compile/memory_sizes.h"
#include "../runtime/device/device.h"

namespace vkf {

/// Bytes of the programs of one model, which share weights and caches.
struct ModelMemory {
    std::uint64_t weights = 0;
    std::uint64_t cache = 0;      ///< keys and values that stay between runs
    std::uint64_t scratch = 0;    ///< scratch memory of all programs
    std::uint64_t constants = 0;  ///< tables
    std::uint64_t transfers = 0;  ///< inputs, outputs and their mirrors on the host's side

    std::uint64_t total() const noexcept { return weights + cache + scratch + constants + transfers; }
    /// Adds what one program needs. Weights and caches are shared by the programs and count once.
    VKF_API void add(const MemorySizes& program) noexcept;
};

/// Throws Error, with `who` as its where(), where that is more than the device has; the text has
/// the numbers.
VKF_API void require_memory(const Device& device, const ModelMemory& memory, const char* who);

}  // namespace vkf
