// SPDX-License-Identifier: Apache-2.0
// Where cached files go: the one place that asks the operating system.
#pragma once

#include <filesystem>

namespace vkf {

/// Gives VKFORMER_CACHE_DIR, else the user's cache folder (XDG_CACHE_HOME, ~/.cache, LOCALAPPDATA)
/// with "vkformer" in it; empty when there is none. Not created.
std::filesystem::path cache_folder();
/// Number of this process, for names of temporary files.
unsigned long process_number();

}  // namespace vkf
