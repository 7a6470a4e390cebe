// SPDX-License-Identifier: Apache-2.0
// Errors of calls that neither throw nor allocate.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>

#include "runtime/device/status.h"

namespace vkf {

/// Formats as printf does. What does not fit is cut in its first half, where names stand: the end
/// says what is wrong.
template <class... Args>
Status failure(int result, const char* format, Args... args) noexcept {
    Status s;
    s.result = result;
    std::array<char, 2048> text{};
    const int length = std::snprintf(text.data(), text.size(), format, args...);
    const std::size_t bytes = length < 0 ? 0 : std::min(static_cast<std::size_t>(length), text.size() - 1);
    const std::size_t room = s.message.size() - 1;
    std::copy_n(text.data(), std::min(bytes, room), s.message.data());
    if (bytes > room) {
        const std::size_t before = room / 2;
        std::copy_n("...", 3, s.message.data() + before);
        std::copy_n(text.data() + bytes - (room - before - 3), room - before - 3, s.message.data() + before + 3);
    }
    return s;
}

using ull = unsigned long long;  // the type that printf has

}  // namespace vkf
