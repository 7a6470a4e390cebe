// SPDX-License-Identifier: Apache-2.0
// Numbers and shapes as messages have them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "numbers.h"

namespace vkf {

/// "(2, 7, 64)".
inline std::string shape_text(std::span<const std::int64_t> shape) {
    std::string out = "(";
    for (const std::int64_t size : shape) {
        out += (out.size() > 1 ? ", " : "") + std::to_string(size);
    }
    return out + ")";
}

/// "12 MiB", rounded up; "512 bytes" below one.
inline std::string megabytes(std::uint64_t bytes) {
    constexpr std::uint64_t kMebibyte = 1u << 20;
    return bytes < kMebibyte ? std::to_string(bytes) + " bytes" : std::to_string(divide_up(bytes, kMebibyte)) + " MiB";
}

}  // namespace vkf
