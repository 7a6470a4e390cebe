// SPDX-License-Identifier: Apache-2.0
// Choices that were measured on a device, kept beside its pipeline cache. ops/tuning.h says what
// can be chosen.
#pragma once

#include <filesystem>
#include <string>

#include "../base/export.h"
#include "device.h"

namespace vkf {

/// The file in which save_tuning() keeps the choices for this device and its driver; empty where
/// there is no cache folder.
VKF_API std::filesystem::path tuning_file(const Device& device);

/// Keeps choices, "name=number" with commas between, for every Device that is made of this device
/// later, with the same cache folder. Empty choices remove the file. Returns the file's path.
/// Throws Error naming the file where it cannot be written, and for what DeviceOptions::tuning
/// refuses.
VKF_API std::filesystem::path save_tuning(const Device& device, const std::string& choices);

}  // namespace vkf
