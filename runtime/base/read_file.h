// SPDX-License-Identifier: Apache-2.0
// Small files that other processes may write or replace, such as caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace vkf {

/// Reads a regular file of at most `most` bytes, as MappedFile opens it. Gives nothing where it is
/// missing, cannot be read, is larger, is cut short meanwhile, or is something else, such as a
/// named pipe, which is not waited for.
std::optional<std::vector<std::byte>> read_regular_file(const std::filesystem::path& path, std::uint64_t most);

}  // namespace vkf
