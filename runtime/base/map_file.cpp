// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/map_file.h"

#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace vkf {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
    throw Error(what, utf8_name(path));
}

#ifdef _WIN32

[[noreturn]] void fail_with_last_error(const std::filesystem::path& path, const std::string& what) {
    const DWORD code = GetLastError();
    fail(path, what + ": " + std::system_category().message(static_cast<int>(code)));
}

struct Handle {
    HANDLE value;
    explicit Handle(HANDLE handle) : value(handle) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        if (value != nullptr && value != INVALID_HANDLE_VALUE) CloseHandle(value);
    }
};

std::span<const std::byte> map(const std::filesystem::path& path) {
    const Handle file(CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
    if (file.value == INVALID_HANDLE_VALUE) fail_with_last_error(path, "cannot open file");
    LARGE_INTEGER size;
    if (!GetFileSizeEx(file.value, &size)) fail_with_last_error(path, "cannot read file size");
    const auto length = static_cast<std::uint64_t>(size.QuadPart);
    if (length == 0) return {};
    if (length > std::numeric_limits<std::size_t>::max()) {
        fail(path, "file of " + std::to_string(length) + " bytes does not fit the address space");
    }
    const Handle mapping(CreateFileMappingW(file.value, nullptr, PAGE_READONLY, 0, 0, nullptr));
    if (mapping.value == nullptr) fail_with_last_error(path, "cannot map file");
    const void* address = MapViewOfFile(mapping.value, FILE_MAP_READ, 0, 0, 0);
    if (address == nullptr) fail_with_last_error(path, "cannot map file");
    return {static_cast<const std::byte*>(address), static_cast<std::size_t>(length)};
}

void release(std::span<const std::byte> bytes) noexcept { UnmapViewOfFile(bytes.data()); }

#else

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, const std::string& what) {
    const int code = errno;
    fail(path, what + ": " + std::generic_category().message(code));
}

struct Descriptor {
    int value;
    explicit Descriptor(int descriptor) : value(descriptor) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (value >= 0) close(value);
    }
};

std::span<const std::byte> map(const std::filesystem::path& path) {
    // Non-blocking, so that a named pipe is refused below instead of waited for.
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.value < 0) fail_with_errno(path, "cannot open file");
    struct stat status {};
    if (fstat(file.value, &status) != 0) fail_with_errno(path, "cannot read file size");
    if (S_ISDIR(status.st_mode)) fail(path, "is a directory, not a file");
    if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
    const auto length = static_cast<std::uint64_t>(status.st_size);
    if (length == 0) return {};
    if (length > std::numeric_limits<std::size_t>::max()) {
        fail(path, "file of " + std::to_string(length) + " bytes does not fit the address space");
    }
    const void* address = mmap(nullptr, static_cast<std::size_t>(length), PROT_READ, MAP_PRIVATE, file.value, 0);
    if (address == MAP_FAILED) fail_with_errno(path, "cannot map file");
    return {static_cast<const std::byte*>(address), static_cast<std::size_t>(length)};
}

void release(std::span<const std::byte> bytes) noexcept { munmap(const_cast<std::byte*>(bytes.data()), bytes.size()); }

#endif

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : bytes_(map(path)) {}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    if (this != &other) {
        unmap();
        bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() noexcept {
    if (!bytes_.empty()) release(bytes_);
    bytes_ = {};
}

std::string utf8_name(const std::filesystem::path& path) {
    const std::u8string name = path.u8string();
    return {name.begin(), name.end()};
}

}  // namespace vkf
