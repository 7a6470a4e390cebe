// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/map_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/mapped_bytes.h"

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
#include <map>
#include <mutex>
#include <shared_mutex>
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
    if (GetFileType(file.value) != FILE_TYPE_DISK) fail(path, "is not a regular file");
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

/// The files that are mapped, by their first byte: reading by descriptor is safe where reading
/// memory is not.
class Mappings {
public:
    struct Entry {
        std::size_t bytes = 0;
        int descriptor = -1;
        std::string name;
    };

    static Mappings& all() {
        static auto* mappings = new Mappings;  // outlives every MappedFile
        return *mappings;
    }

    void add(const std::byte* begin, Entry entry) {
        const std::unique_lock lock(mutex_);
        entries_.emplace(begin, std::move(entry));
    }

    void remove(const std::byte* begin) noexcept {
        const std::unique_lock lock(mutex_);
        const auto found = entries_.find(begin);
        close(found->second.descriptor);
        entries_.erase(found);
    }

    bool has(const std::byte* from) {
        const std::shared_lock lock(mutex_);
        return find(from) != entries_.end();
    }

    /// False where the bytes are of no mapped file.
    bool read(std::span<const std::byte> from, std::byte* to) {
        const std::shared_lock lock(mutex_);
        const auto found = find(from.data());
        if (found == entries_.end()) {
            return false;
        }
        const Entry& file = found->second;
        auto at = static_cast<std::uint64_t>(from.data() - found->first);
        const std::uint64_t end = at + from.size();
        while (at < end) {
            const ssize_t got = pread(file.descriptor, to, static_cast<std::size_t>(end - at), static_cast<off_t>(at));
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0) {
                fail_with_errno(file.name, "cannot be read");
            }
            if (got == 0) {
                throw Error("was cut short while it was in use: its bytes " + std::to_string(at) + " to " +
                                std::to_string(end) + " are gone",
                            file.name);
            }
            at += static_cast<std::uint64_t>(got);
            to += got;
        }
        return true;
    }

private:
    using Entries = std::map<const std::byte*, Entry, std::less<>>;

    Entries::const_iterator find(const std::byte* from) const {
        auto found = entries_.upper_bound(from);
        if (found == entries_.begin()) {
            return entries_.end();
        }
        --found;
        return from < found->first + found->second.bytes ? found : entries_.end();
    }

    std::shared_mutex mutex_;
    Entries entries_;
};

std::span<const std::byte> map(const std::filesystem::path& path) {
    // Non-blocking, so that a named pipe is refused below instead of waited for.
    Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
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
    const auto bytes = static_cast<std::size_t>(length);
    const void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.value, 0);
    if (address == MAP_FAILED) fail_with_errno(path, "cannot map file");
    const auto* begin = static_cast<const std::byte*>(address);
    try {
        Mappings::all().add(begin, {bytes, file.value, utf8_name(path)});
    } catch (...) {
        munmap(const_cast<void*>(address), bytes);
        throw;
    }
    file.value = -1;  // the mapping's now
    return {begin, bytes};
}

void release(std::span<const std::byte> bytes) noexcept {
    Mappings::all().remove(bytes.data());
    munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

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

#ifdef _WIN32

// Windows lets nobody shorten a file that is mapped.
void copy_bytes(std::span<const std::byte> from, std::byte* to) { std::copy(from.begin(), from.end(), to); }

void in_parts(std::span<const std::byte> bytes, std::size_t,
              const std::function<void(std::span<const std::byte>)>& take) {
    take(bytes);
}

#else

void copy_bytes(std::span<const std::byte> from, std::byte* to) {
    if (!from.empty() && !Mappings::all().read(from, to)) {
        std::memcpy(to, from.data(), from.size());
    }
}

void in_parts(std::span<const std::byte> bytes, std::size_t multiple,
              const std::function<void(std::span<const std::byte>)>& take) {
    constexpr std::size_t kPart = std::size_t{1} << 18;
    if (bytes.empty() || !Mappings::all().has(bytes.data())) {
        take(bytes);
        return;
    }
    std::vector<std::byte> part(std::min(bytes.size(), std::max(kPart / multiple, std::size_t{1}) * multiple));
    while (!bytes.empty()) {
        const std::span<std::byte> some = std::span(part).first(std::min(part.size(), bytes.size()));
        copy_bytes(bytes.first(some.size()), some.data());
        take(some);
        bytes = bytes.subspan(some.size());
    }
}

#endif

std::string file_text(const std::filesystem::path& path, std::uint64_t most) {
    const MappedFile file(path);
    if (file.bytes().size() > most) {
        fail(path, "has " + std::to_string(file.bytes().size()) + " bytes, of which at most " + std::to_string(most) +
                       " are read");
    }
    std::string text(file.bytes().size(), '\0');
    copy_bytes(file.bytes(), reinterpret_cast<std::byte*>(text.data()));
    return text;
}

std::string utf8_name(const std::filesystem::path& path) {
    const std::u8string name = path.u8string();
    return {name.begin(), name.end()};
}

}  // namespace vkf
