// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/write_file.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <system_error>

#include "runtime/base/cache_folder.h"
#include "runtime/base/error.h"
#include "runtime/base/map_file.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

namespace vkf {

void write_whole_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::error_code error;
    if (bytes.empty()) {
        std::filesystem::remove(path, error);
    } else {
        std::filesystem::create_directories(path.parent_path(), error);
        if (error) {
            throw Error("its folder cannot be made: " + error.message(), utf8_name(path));
        }
        std::filesystem::path temporary = path;
        // threads may save at once, and processes in containers, which may have one number
        static std::atomic<unsigned> serial = 0;
        static const auto begun = std::chrono::system_clock::now().time_since_epoch().count();
        temporary +=
            "." + std::to_string(process_number()) + "." + std::to_string(begun) + "." + std::to_string(serial++);
        errno = 0;
        std::ofstream out(temporary, std::ios::binary);
        out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        out.close();
        if (!out) {
            error = {errno != 0 ? errno : EIO, std::generic_category()};
        } else {
            std::filesystem::rename(temporary, path, error);
        }
        if (error) {
            std::error_code ignored;
            std::filesystem::remove(temporary, ignored);
        }
    }
    if (error) {
        throw Error("cannot be written: " + error.message(), utf8_name(path));
    }
}

void flush_to_disk(const std::filesystem::path& path) {
#ifdef _WIN32
    const HANDLE file = CreateFileW(path.c_str(), GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                                    nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    const bool flushed = file != INVALID_HANDLE_VALUE && FlushFileBuffers(file);
    const std::error_code error(flushed ? 0 : static_cast<int>(GetLastError()), std::system_category());
    if (file != INVALID_HANDLE_VALUE) {
        CloseHandle(file);
    }
#else
    int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == EACCES) {  // written, and not to be read
        file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    }
    // what is no file on a disk has nothing to flush, which is EINVAL
    const bool flushed = file >= 0 && (fsync(file) == 0 || errno == EINVAL);
    const std::error_code error(flushed ? 0 : errno, std::generic_category());
    if (file >= 0) {
        close(file);
    }
#endif
    if (error) {
        throw Error("cannot be written to its disk: " + error.message(), utf8_name(path));
    }
}

}  // namespace vkf
