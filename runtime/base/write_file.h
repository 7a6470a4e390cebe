// SPDX-License-Identifier: Apache-2.0
// Small files that other processes may read at any time.
#pragma once

#include <filesystem>
#include <string>

namespace vkf {

/// Writes the file whole or not at all, its folder too; readers see the old file or the new. An
/// empty text removes it. Throws Error naming it.
void write_whole_file(const std::filesystem::path& path, const std::string& text);

}  // namespace vkf
