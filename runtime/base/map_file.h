// SPDX-License-Identifier: Apache-2.0
// A file as read-only memory: weights go from the page cache to the device without a copy of ours
// in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "export.h"

namespace vkf {

/// Maps a whole regular file read-only; unmaps when destroyed. Moving keeps the address, so spans
/// stay valid. The library itself reads what it is given of a mapped file by the file's descriptor:
/// where somebody has shortened the file meanwhile, that is an Error naming it. Whoever reads the
/// span itself must know that the file keeps its length: the system may else end the process.
class VKF_API MappedFile {
public:
    MappedFile() = default;

    /// Throws Error, its where() naming the file, if it is missing, unreadable or not a regular
    /// file.
    explicit MappedFile(const std::filesystem::path& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    /// Empty for an empty file. Page-aligned otherwise.
    std::span<const std::byte> bytes() const noexcept { return bytes_; }

private:
    void unmap() noexcept;

    std::span<const std::byte> bytes_;
};

/// A regular file's bytes. Throws Error, naming the file, as MappedFile does, and where it has more
/// than `most` bytes, before any is read.
VKF_API std::string file_text(const std::filesystem::path& path, std::uint64_t most = std::uint64_t{512} << 20);

/// The path as UTF-8, for messages.
VKF_API std::string utf8_name(const std::filesystem::path& path);

}  // namespace vkf
