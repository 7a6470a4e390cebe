// SPDX-License-Identifier: Apache-2.0
// How much one storage buffer may show, and what is said of a tensor that is larger.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/compile/capabilities.h"
#include "runtime/graph/graph.h"

namespace vkf {

/// Bytes that one descriptor can show wherever they begin: it begins at a multiple of
/// storage_alignment, so up to that much earlier.
inline std::uint64_t bindable_bytes(const Capabilities& device) noexcept {
    return device.storage_range > device.storage_alignment ? device.storage_range - device.storage_alignment : 0;
}

/// The text of an error, with the tensor's name where it has one.
inline std::string beyond_one_buffer(const StorageInfo& storage, std::uint64_t bytes, const Capabilities& device) {
    return "a tensor of " + std::to_string(bytes) + " bytes" + (storage.name.empty() ? "" : ", " + storage.name + ",") +
           " is larger than the " + std::to_string(device.storage_range) +
           " bytes one storage buffer may have on this device";
}

}  // namespace vkf
