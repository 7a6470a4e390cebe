// SPDX-License-Identifier: Apache-2.0
// Copies device memory to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/device/memory.h"

namespace vkf {

/// Bytes of a block that follow each other.
struct ByteRange {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

/// Waits for whatever the queue has been given, and copies the ranges to `to`, one behind the
/// other: through a staging block of DeviceOptions::staging_bytes at most where the host does not
/// see the memory. Throws Error on a device for which the host submits.
void download(const std::shared_ptr<DeviceCore>& core, const Block& from, std::span<const ByteRange> ranges,
              std::span<std::byte> to);

}  // namespace vkf
