// SPDX-License-Identifier: Apache-2.0
// Choices that were measured on a device, kept beside its pipeline cache. What can be chosen is the
// ops' affair: ops/tuning.h.
#pragma once

#include <filesystem>
#include <string>

#include "../base/export.h"
#include "device.h"

namespace vkf {

/// Where save_tuning() keeps what is for this device and its driver; empty where there is no cache
/// folder.
VKF_API std::filesystem::path tuning_file(const Device& device);

/// Keeps choices, "name=number" with commas between, for the Devices that later are made of this
/// device with the same cache folder; empty: forgets them. Returns the file. Throws Error naming
/// the file where it cannot be written, and what is no such list.
VKF_API std::filesystem::path save_tuning(const Device& device, const std::string& choices);

}  // namespace vkf
