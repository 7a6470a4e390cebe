// SPDX-License-Identifier: Apache-2.0
#include "text/precompiled.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

std::string from_base64(std::string_view text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while (text.ends_with('=')) {
        text.remove_suffix(1);
    }
    std::string bytes;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const std::size_t digit = kDigits.find(c);
        if (digit == std::string_view::npos) {
            throw Error("precompiled_charsmap is not base64", "tokenizer");
        }
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count >= 8) {
            count -= 8;
            bytes += static_cast<char>(bits >> count & 0xFF);
        }
    }
    return bytes;
}

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        word |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
    }
    return word;
}

[[noreturn]] void broken(const std::string& what) { throw Error("precompiled_charsmap: " + what, "tokenizer"); }

class Charsmap {
public:
    explicit Charsmap(std::string_view bytes) {
        const std::size_t trie = bytes.size() < 4 ? 0 : word_at(bytes, 0);
        if (trie < 4 || trie % 4 != 0 || trie > bytes.size() - 4) {
            broken(std::to_string(bytes.size()) + " bytes do not hold a trie of " + std::to_string(trie));
        }
        for (std::size_t at = 0; at < trie; at += 4) {
            units_.push_back(word_at(bytes, 4 + at));
        }
        texts_ = bytes.substr(4 + trie);
        if (malformed_at(texts_) != std::string::npos) {
            broken("a replacement is not UTF-8");
        }
        if (texts_.empty() || texts_.back() != '\0') {
            broken("the last replacement has no end");
        }
        check();
    }

    std::string operator()(const std::string& text) const {
        std::string out;
        for_each_grapheme(text, [&](std::string_view grapheme) {
            if (grapheme.size() < 6 && replace(grapheme, out)) {
                return;
            }
            for_each_character(grapheme, [&](std::string_view character, char32_t) {
                if (!replace(character, out)) {
                    out += character;
                }
            });
        });
        return out;
    }

private:
    /// Appends what stands for the shortest key that the text begins with: the rest of the text
    /// goes with it, as in the reference.
    bool replace(std::string_view text, std::string& out) const {
        std::size_t node = offset(units_[0]);
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            node ^= byte;
            if (byte == 0 || !leads(node, byte)) {
                return false;
            }
            const std::uint32_t unit = units_[node];
            node ^= offset(unit);
            if (ends_key(unit)) {
                out += text_at(replacement(node));
                return true;
            }
        }
        return false;
    }

    /// Checks every place that a walk through the trie can reach.
    void check() const {
        std::vector<bool> seen(units_.size(), false);
        std::vector<std::size_t> open{0};
        while (!open.empty()) {
            const std::uint32_t unit = units_[open.back()];
            const std::size_t node = open.back() ^ offset(unit);
            const bool root = open.back() == 0;
            open.pop_back();
            if ((node | 0xFF) >= units_.size()) {
                broken("its trie leads out of itself");
            }
            if (!root && ends_key(unit) && !starts_text(replacement(node))) {
                broken("its trie leads to no replacement");
            }
            for (std::uint32_t byte = 1; byte < 256; ++byte) {
                const std::size_t next = node ^ byte;
                if (leads(next, byte) && !seen[next]) {
                    seen[next] = true;
                    open.push_back(next);
                }
            }
        }
    }

    bool leads(std::size_t node, std::uint32_t byte) const { return (units_[node] & 0x800000FFu) == byte; }
    static bool ends_key(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
    /// The place where the text begins that the leaf of a key holds.
    std::size_t replacement(std::size_t leaf) const { return units_[leaf] & 0x7FFFFFFFu; }
    /// A text ends at a NUL. One that is longer than any that a table has, or begins inside a
    /// character, is none.
    bool starts_text(std::size_t at) const {
        return at < texts_.size() && (static_cast<unsigned char>(texts_[at]) & 0xC0) != 0x80 &&
               text_at(at).size() < kMostReplaced;
    }
    std::string_view text_at(std::size_t at) const {
        const std::string_view text = std::string_view(texts_).substr(at, kMostReplaced);
        return text.substr(0, text.find('\0'));
    }

    static constexpr std::size_t kMostReplaced = 1024;

    static std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

    std::vector<std::uint32_t> units_;
    std::string texts_;
};

}  // namespace

std::function<std::string(std::string)> make_precompiled(std::string_view base64) {
    return
        [map = std::make_shared<const Charsmap>(from_base64(base64))](const std::string& text) { return (*map)(text); };
}

void check_charsmap(std::string_view bytes) {
    if (!bytes.empty()) {
        const Charsmap checked(bytes);
    }
}

}  // namespace vkf::text
