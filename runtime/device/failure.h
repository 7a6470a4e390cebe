// SPDX-License-Identifier: Apache-2.0
// Errors of calls that neither throw nor allocate.
#pragma once

#include <cstdio>

#include "runtime/device/status.h"

namespace vkf {

/// Formats as printf does.
template <class... Args>
Status failure(int result, const char* format, Args... args) noexcept {
    Status s;
    s.result = result;
    std::snprintf(s.message.data(), s.message.size(), format, args...);
    return s;
}

using ull = unsigned long long;  // the type that printf has

}  // namespace vkf
