// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/library.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace vkf {

#if defined(_WIN32)

SharedLibrary::SharedLibrary(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (!handle_) {
            handle_ = reinterpret_cast<void*>(LoadLibraryA(name));
            why_ = handle_ ? "" : std::string(name) + ": error " + std::to_string(GetLastError());
        }
    }
}

void* SharedLibrary::symbol(const char* name) const noexcept {
    return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(handle_), name));
}

#else

SharedLibrary::SharedLibrary(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (!handle_) {
            handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
            const char* said = handle_ ? nullptr : dlerror();
            why_ = said ? said : "";
        }
    }
}

void* SharedLibrary::symbol(const char* name) const noexcept { return dlsym(handle_, name); }

#endif

}  // namespace vkf
