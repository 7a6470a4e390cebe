// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/target.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "runtime/device/device.h"

#if defined(__unix__)
#include <unistd.h>
#endif

namespace vkf::fuzz {

namespace {

const Target* first_target = nullptr;
const Target* chosen = nullptr;

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

const Target* choose_target(std::string_view name) {
    for (const Target* t = first_target; t != nullptr; t = t->next) {
        if (t->name == name) {
            return chosen = t;
        }
    }
    return nullptr;
}

std::string target_names() {
    std::string names;
    for (const Target* t = first_target; t != nullptr; t = t->next) {
        names += std::string(" ") + t->name;
    }
    return names;
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
