// SPDX-License-Identifier: Apache-2.0
// Numbers and shapes as messages have them, and the parts of a list.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "numbers.h"

namespace vkf {

/// Gives the part of `rest` before the next `end`, or all of it; takes it and the `end` off `rest`.
inline std::string_view take_part(std::string_view& rest, char end) noexcept {
    const std::size_t at = std::min(rest.find(end), rest.size());
    const std::string_view part = rest.substr(0, at);
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return part;
}

/// Copies a text into `room` bytes, without a 0 behind it; returns how many bytes it took. What
/// does not fit is cut in its middle, between characters: names stand in front, and the end says
/// what is wrong. In less than 6 bytes there is its beginning.
inline std::size_t copy_cut(std::string_view text, char* to, std::size_t room) noexcept {
    constexpr std::string_view kCut = "...";
    if (text.size() <= room) {
        return text.copy(to, room);
    }
    const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
    const bool both = room >= 2 * kCut.size();
    std::size_t before = both ? room / 2 : room;
    while (before > 0 && inside(before)) {
        --before;
    }
    if (!both) {
        return text.copy(to, before);
    }
    std::size_t behind = text.size() - (room - room / 2 - kCut.size());
    while (behind < text.size() && inside(behind)) {
        ++behind;
    }
    std::size_t length = text.copy(to, before);
    length += kCut.copy(to + length, kCut.size());
    return length + text.copy(to + length, text.size() - behind, behind);
}

/// Writes a shape as "(2, 7, 64)".
inline std::string shape_text(std::span<const std::int64_t> shape) {
    std::string out = "(";
    for (const std::int64_t size : shape) {
        out += (out.size() > 1 ? ", " : "") + std::to_string(size);
    }
    return out + ")";
}

/// Writes a size as "12 MiB", rounded up, or as "512 bytes" below one.
inline std::string megabytes(std::uint64_t bytes) {
    constexpr std::uint64_t kMebibyte = 1u << 20;
    return bytes < kMebibyte ? std::to_string(bytes) + " bytes" : std::to_string(divide_up(bytes, kMebibyte)) + " MiB";
}

/// Writes a number in every locale alike: the shortest text that tells it from others of its type.
template <class Number>
std::string exact(Number number) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

/// Gives text from a file that may be hostile, in quotes and made fit for a terminal: bounded,
/// without control characters.
inline std::string printable(std::string_view text) {
    constexpr std::size_t kMaxBytes = 120;
    std::string result = "\"";
    std::size_t length = std::min(text.size(), kMaxBytes);
    while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
    unsigned char before = 0;
    for (const char c : text.substr(0, length)) {
        const auto byte = static_cast<unsigned char>(c);
        // in UTF-8 the second set of control characters is C2 80 to C2 9F
        const bool control = byte < 0x20 || byte == 0x7F || (before == 0xC2 && byte >= 0x80 && byte < 0xA0);
        result += control ? '?' : c;
        before = byte;
    }
    return result + (length < text.size() ? "...\"" : "\"");
}

}  // namespace vkf
