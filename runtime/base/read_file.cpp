// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/read_file.h"

#include <fstream>
#include <system_error>

#ifndef _WIN32
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace vkf {

#ifdef _WIN32

std::optional<std::vector<std::byte>> read_regular_file(const std::filesystem::path& path, std::uint64_t most) {
    std::error_code error;
    const bool regular = std::filesystem::is_regular_file(path, error);
    const std::uintmax_t size = regular ? std::filesystem::file_size(path, error) : 0;
    std::ifstream file(path, std::ios::binary);
    if (!regular || error || size > most || !file) {
        return std::nullopt;
    }
    std::vector<std::byte> all(static_cast<std::size_t>(size));
    file.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(all.size()));
    all.resize(static_cast<std::size_t>(file.gcount()));  // less where it was cut short meanwhile
    return all;
}

#else

namespace {

struct OpenFile {
    int value;
    explicit OpenFile(int descriptor) : value(descriptor) {}
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() {
        if (value >= 0) {
            close(value);
        }
    }
};

}  // namespace

std::optional<std::vector<std::byte>> read_regular_file(const std::filesystem::path& path, std::uint64_t most) {
    // Non-blocking, so that a named pipe is refused and not waited for.
    const OpenFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (file.value < 0 || fstat(file.value, &status) != 0 || !S_ISREG(status.st_mode) ||
        static_cast<std::uint64_t>(status.st_size) > most) {
        return std::nullopt;
    }
    std::vector<std::byte> all(static_cast<std::size_t>(status.st_size));
    std::size_t at = 0;
    while (at < all.size()) {
        const ssize_t got = read(file.value, all.data() + at, all.size() - at);
        if (got < 0 && errno != EINTR) {
            return std::nullopt;
        }
        if (got == 0) {
            all.resize(at);  // it was cut short meanwhile
        }
        at += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    return all;
}

#endif

}  // namespace vkf
