// SPDX-License-Identifier: Apache-2.0
// Kernels that a device is wrong with, kept beside its pipeline cache so that programs do without
// them. vkformer-doctor finds them; Device::self_test() does for one device.
#pragma once

#include <filesystem>
#include <span>

#include "../base/export.h"
#include "device.h"

namespace vkf {

/// The file in which save_left_out() keeps the list for this device and its driver; empty where
/// there is no cache folder.
VKF_API std::filesystem::path left_out_file(const Device& device);

/// Keeps a list for every Device that is made of this device later, with the same driver and cache
/// folder. An empty list removes the file. Returns the file's path. Throws Error naming the file
/// where it cannot be written or would have more than 64 KiB, and for a name or reason that a line
/// of it cannot hold.
VKF_API std::filesystem::path save_left_out(const Device& device, std::span<const LeftOut> kernels);

}  // namespace vkf
