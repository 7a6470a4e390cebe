// SPDX-License-Identifier: Apache-2.0
// Choices that were measured on a device: where they come from, and the file that keeps them.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/compile/capabilities.h"
#include "runtime/device/device_options.h"

namespace vkf {

/// Puts into `capabilities` what was chosen: VKFORMER_TUNING, else DeviceOptions::tuning ("0":
/// nothing), else the file. Throws Error for a list that is none; where there is a file that is not
/// used, for it is none or because of "0", explain() says so.
void find_tuning(Capabilities& capabilities, const DeviceOptions& options, const std::filesystem::path& folder);

/// The file in that folder for this device and its driver; empty where the folder is.
std::filesystem::path tuning_path(const std::filesystem::path& folder, const Capabilities& device);

/// Throws Error, its where() being `where`, for a part that is not name=number.
void require_tuning(const std::string& choices, const std::string& where);

/// Writes the file whole or not at all; removes it where there are no choices. Throws Error naming
/// it.
void write_tuning(const std::filesystem::path& path, const std::string& choices);

}  // namespace vkf
