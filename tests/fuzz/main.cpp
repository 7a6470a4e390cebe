// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entries, and what is counted around each input.
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "runtime/device/device.h"
#include "tests/fuzz/target.h"

#if defined(__unix__)
#include <unistd.h>
#endif

namespace vkf::fuzz {

namespace {

constexpr std::int64_t kMostBeyond = 64 << 20;  // bytes

const Target* first_target = nullptr;
const Target* chosen = nullptr;

// What is allocated while an input is read, in all threads.
std::atomic<bool> counting = false;
std::atomic<std::int64_t> in_use = 0, most = 0;

void count_new(const volatile void*, std::size_t bytes) {
    if (counting) {
        const std::int64_t now = in_use += static_cast<std::int64_t>(bytes);
        std::int64_t before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
    }
}

void count_gone(const volatile void* pointer) {
    if (counting && pointer != nullptr) {
        in_use -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
    }
}

struct Folder {
    Folder() {
        const std::filesystem::path shared = "/dev/shm";
        std::error_code none;
        path = (std::filesystem::is_directory(shared, none) ? shared : std::filesystem::temp_directory_path()) /
               ("vkformer-fuzz-" + std::to_string(getpid()));
        std::filesystem::create_directories(path);
    }
    ~Folder() {
        std::error_code gone;
        std::filesystem::remove_all(path, gone);
    }
    std::filesystem::path path;
};

}  // namespace

Target::Target(const char* its_name, void (*its_read)(Bytes)) : name(its_name), read(its_read), next(first_target) {
    first_target = this;
}

void fail(const std::string& what) {
    std::fprintf(stderr, "%s: %s\n", chosen->name, what.c_str());
    std::abort();
}

const std::filesystem::path& folder() {
    static const Folder folder;
    return folder.path;
}

void write(const std::filesystem::path& path, Bytes bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    out.close();
    require(out.good(), "a file could not be written");
}

const Device& device() {
    static const Device device = Device::create({.cache_folder = folder() / "cache"});
    return device;
}

}  // namespace vkf::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    using namespace vkf::fuzz;
    const char* asked = std::getenv("VKFORMER_FUZZ");
    for (const Target* t = first_target; t != nullptr; t = t->next) {
        chosen = asked != nullptr && std::strcmp(asked, t->name) == 0 ? t : chosen;
    }
    if (chosen == nullptr) {
        std::fprintf(stderr, "VKFORMER_FUZZ names no target; there are:");
        for (const Target* t = first_target; t != nullptr; t = t->next) {
            std::fprintf(stderr, " %s", t->name);
        }
        std::fprintf(stderr, "\n");
        std::exit(1);
    }
    try {
        chosen->read({});  // what is made once is not of an input
    } catch (const vkf::Error&) {
    }
    __sanitizer_install_malloc_and_free_hooks(count_new, count_gone);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace vkf::fuzz;
    in_use = most = 0;
    counting = true;
    try {
        chosen->read({reinterpret_cast<const std::byte*>(data), size});
    } catch (const vkf::Error&) {
    }
    counting = false;
    if (most > kMostBeyond + static_cast<std::int64_t>(size)) {
        fail("took " + std::to_string(most >> 20) + " MiB for " + std::to_string(size) + " bytes");
    }
    return 0;
}
