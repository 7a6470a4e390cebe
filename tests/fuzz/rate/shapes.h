// SPDX-License-Identifier: Apache-2.0
// Large files of each format, each of the shape that is worst for some part of its reader.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace vkf::fuzz {

struct LargeFile {
    const char* target;  ///< the fuzz target that reads it
    const char* shape;
    /// About so many bytes.
    std::string (*make)(std::size_t bytes);
    /// What another library takes, in bytes for each of the file.
    int times = 0;
};

std::span<const LargeFile> large_files();

}  // namespace vkf::fuzz
