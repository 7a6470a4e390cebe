// SPDX-License-Identifier: Apache-2.0
// Small files that other processes may read at any time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace vkf {

/// Writes the file whole or not at all, its folder too; readers see the old file or the new. Where
/// there are no bytes it is removed. Throws Error naming it.
void write_whole_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
inline void write_whole_file(const std::filesystem::path& path, std::string_view text) {
    write_whole_file(path, std::as_bytes(std::span(text)));
}

/// Returns when what was written to the file is on its disk, so that a rename that comes after it
/// cannot get there first. Throws Error naming the file where the disk failed.
void flush_to_disk(const std::filesystem::path& path);

}  // namespace vkf
