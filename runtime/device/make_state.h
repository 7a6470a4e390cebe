// SPDX-License-Identifier: Apache-2.0
// Makes a State for what graphs name.
#pragma once

#include <memory>
#include <span>

#include "runtime/device/device_core.h"
#include "runtime/device/state.h"
#include "runtime/graph/graph.h"

namespace vkf {

/// Memory for the states among these storages, zeroed. Throws Error naming a state that two graphs
/// want with different shapes or types.
State make_state_of(const std::shared_ptr<DeviceCore>& core, std::span<const StorageInfo> storages);

}  // namespace vkf
