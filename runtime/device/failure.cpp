// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/failure.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

#include "runtime/base/text.h"

namespace vkf {

namespace {

Status formatted(int result, const char* format, std::va_list arguments) noexcept {
    Status s;
    s.result = result;
    std::array<char, 2048> text{};
    const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
    const std::size_t bytes = length < 0 ? 0 : std::min(static_cast<std::size_t>(length), text.size() - 1);
    copy_cut({text.data(), bytes}, s.message.data(), s.message.size() - 1);
    return s;
}

}  // namespace

Status failure(int result, const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    const Status s = formatted(result, format, arguments);
    va_end(arguments);
    return s;
}

Status misuse(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    const Status s = formatted(Status::kWrongUse, format, arguments);
    va_end(arguments);
    return s;
}

}  // namespace vkf
