// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/cache_folder.h"

#include <cstdlib>

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

namespace vkf {

namespace {

std::filesystem::path from_environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::filesystem::path(value) : std::filesystem::path();
}

}  // namespace

std::filesystem::path cache_folder() {
    if (const auto own = from_environment("VKFORMER_CACHE_DIR"); !own.empty()) {
        return own;
    }
#if defined(_WIN32)
    const auto base = from_environment("LOCALAPPDATA");
#else
    auto base = from_environment("XDG_CACHE_HOME");
    if (base.empty()) {
        const auto home = from_environment("HOME");
        base = home.empty() ? home : home / ".cache";
    }
#endif
    return base.empty() ? base : base / "vkformer";
}

unsigned long process_number() {
#if defined(_WIN32)
    return static_cast<unsigned long>(_getpid());
#else
    return static_cast<unsigned long>(getpid());
#endif
}

}  // namespace vkf
