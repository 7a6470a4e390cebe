// SPDX-License-Identifier: Apache-2.0
// Loading a shared library: the one place that asks the operating system for one.
#pragma once

#include <initializer_list>
#include <string>

namespace vkf {

/// An open shared library, never closed: drivers do not survive being unloaded. Empty when none of
/// the names could be opened.
class SharedLibrary {
public:
    explicit SharedLibrary(std::initializer_list<const char*> names);
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    void* symbol(const char* name) const noexcept;
    /// The operating system's message for the last name; empty when a library is open.
    const std::string& why() const noexcept { return why_; }

private:
    void* handle_ = nullptr;
    std::string why_;
};

}  // namespace vkf
