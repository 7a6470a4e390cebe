// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace vkf::text {

namespace {

bool shown_as_itself(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Table {
    std::array<std::string, 256> characters;
    std::array<int, 324> bytes;

    Table() {
        bytes.fill(-1);
        char32_t next = 256;
        for (unsigned byte = 0; byte < 256; ++byte) {
            const char32_t c = shown_as_itself(byte) ? byte : next++;
            append_utf8(characters[byte], c);
            bytes[c] = static_cast<int>(byte);
        }
    }
};

const Table& table() {
    static const Table kTable;
    return kTable;
}

}  // namespace

std::string bytes_to_characters(std::string_view text) {
    std::string out;
    for (const char c : text) {
        out += table().characters[static_cast<unsigned char>(c)];
    }
    return out;
}

bool characters_to_bytes(std::string_view characters, std::string& bytes) {
    std::string out;
    bool all = true;
    for_each_character(characters, [&](std::string_view, char32_t c) {
        const int byte = c < table().bytes.size() ? table().bytes[c] : -1;
        all = all && byte >= 0;
        out += static_cast<char>(byte);
    });
    if (all) {
        bytes += out;
    }
    return all;
}

}  // namespace vkf::text
