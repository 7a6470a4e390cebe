// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/failure.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace vkf {

Status failure(int result, const char* format, ...) noexcept {
    Status s;
    s.result = result;
    std::array<char, 2048> text{};
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    const std::size_t bytes = length < 0 ? 0 : std::min(static_cast<std::size_t>(length), text.size() - 1);
    const std::size_t room = s.message.size() - 1;
    const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
    std::size_t before = std::min(bytes, room), behind = bytes;
    if (bytes > room) {
        for (before = room / 2; before > 0 && inside(before); --before) {
        }
        for (behind = bytes - (room - room / 2 - 3); inside(behind); ++behind) {
        }
    }
    char* at = std::copy_n(text.data(), before, s.message.data());
    if (bytes > room) {
        at = std::copy_n("...", 3, at);
        std::copy_n(text.data() + behind, bytes - behind, at);
    }
    return s;
}

}  // namespace vkf
