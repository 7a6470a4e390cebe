// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "runtime/capabilities.h"
#include "runtime/device.h"

namespace vkf {

/// Puts into `capabilities` what was chosen: VKFORMER_TUNING, else DeviceOptions::tuning ("0": nothing), else the file. Throws Error for a list
/// that is none; a file that is none is not used, and explain() says so.
void find_tuning(Capabilities& capabilities, const DeviceOptions& options, const std::filesystem::path& folder);

}  // namespace vkf
