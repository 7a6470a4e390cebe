// SPDX-License-Identifier: Apache-2.0
// What a JSON text would take when it is parsed, told before it is: brackets, commas and colons are
// counted, which whoever wrote the file could have written without end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "error.h"

namespace vkf {

/// Memory that a text may take when it is parsed, beyond the text itself.
inline constexpr std::uint64_t kMostParsedBytes = std::uint64_t{64} << 20;

/// About the bytes that a parsed text takes: of a value, of a member's name and value, of a list or
/// an object. Throws where it is nested deeper than `deepest` levels, for whoever copies or prints
/// what is nested calls itself for each, and where a text or a number has no end.
inline std::uint64_t parsed_bytes(std::string_view json, int deepest) {
    constexpr std::uint64_t kValue = 56, kMember = 130, kBracket = 24;
    constexpr std::size_t kLongestText = std::size_t{4} << 20, kLongestNumber = 1000;
    std::uint64_t bytes = 0;
    int depth = 0;
    for (std::size_t i = 0; i < json.size(); ++i) {
        switch (json[i]) {
            case '"': {
                const std::size_t begin = i;
                for (++i; i < json.size() && json[i] != '"'; ++i) {
                    i += json[i] == '\\' ? 1 : 0;
                }
                if (i - begin - 1 > kLongestText) {
                    throw Error("it has a text of more than " + std::to_string(kLongestText) + " bytes");
                }
                break;
            }
            case '[':
            case '{':
                if (++depth > deepest) {
                    throw Error("it is nested deeper than " + std::to_string(deepest) + " levels");
                }
                bytes += kBracket;
                break;
            case ']':
            case '}': --depth; break;
            case ',': bytes += kValue; break;
            case ':': bytes += kMember; break;
            default: {
                const std::size_t begin = i;
                i = std::min(json.find_first_of("\"[]{},: \t\r\n", i), json.size());
                if (i - begin > kLongestNumber) {
                    throw Error("it has a number of more than " + std::to_string(kLongestNumber) + " digits");
                }
                i = i == begin ? i : i - 1;  // white space is stepped over
            }
        }
    }
    return bytes;
}

/// Throws where so many bytes are more than kMostParsedBytes.
inline void require_parsed_bytes(std::uint64_t bytes) {
    if (bytes > kMostParsedBytes) {
        throw Error("what it lists would take " + std::to_string(bytes >> 20) + " MiB, of which at most " +
                    std::to_string(kMostParsedBytes >> 20) + " are given to it");
    }
}

}  // namespace vkf
