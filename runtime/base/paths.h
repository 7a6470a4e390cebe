// SPDX-License-Identifier: Apache-2.0
// Questions about files whose answer may be that one may not ask: an Error then, never an exception
// of the standard library's.
#pragma once

#include <filesystem>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"

namespace vkf {

/// Returns what kind of file is there, if any. Throws Error naming the path where the system does
/// not say.
inline std::filesystem::file_status status_of(const std::filesystem::path& path) {
    std::error_code code;
    const std::filesystem::file_status status = std::filesystem::status(path, code);
    if (!std::filesystem::status_known(status)) {
        throw Error("cannot be read: " + code.message(), utf8_name(path));
    }
    return status;
}

inline bool is_there(const std::filesystem::path& path) { return std::filesystem::exists(status_of(path)); }
inline bool is_folder(const std::filesystem::path& path) { return std::filesystem::is_directory(status_of(path)); }

/// True where nothing is there, no link either that leads nowhere. What one may not ask of is not
/// absent.
inline bool is_absent(const std::filesystem::path& path) noexcept {
    std::error_code unknown;
    return std::filesystem::symlink_status(path, unknown).type() == std::filesystem::file_type::not_found;
}

}  // namespace vkf
