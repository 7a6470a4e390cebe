// SPDX-License-Identifier: Apache-2.0
// What is said of a tensor that is larger than one storage buffer may be.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/compile/capabilities.h"
#include "runtime/graph/graph.h"

namespace vkf {

/// The text of an error, with the tensor's name where it has one.
inline std::string beyond_one_buffer(const StorageInfo& storage, std::uint64_t bytes, const Capabilities& device) {
    return "a tensor of " + std::to_string(bytes) + " bytes" + (storage.name.empty() ? "" : ", " + storage.name + ",") +
           " is larger than the " + std::to_string(device.storage_range) +
           " bytes one storage buffer may have on this device";
}

}  // namespace vkf
