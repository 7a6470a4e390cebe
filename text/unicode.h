// SPDX-License-Identifier: Apache-2.0
// UTF-8 and the properties of characters that tokenizers ask for: utf8proc's, except where
// reference_tables.h knows better.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vkf::text {

/// Finds the first byte that is no well-formed UTF-8; npos: there is none.
std::size_t malformed_at(std::string_view text) noexcept;
/// Bytes of the character at the front of a well-formed text that is not empty.
std::size_t character_bytes(std::string_view text) noexcept;
/// The code point of the character at the front of such a text.
char32_t code_point(std::string_view text) noexcept;
void append_utf8(std::string& text, char32_t c);
/// Replaces every part that is no well-formed UTF-8 by U+FFFD, as Unicode recommends (maximal
/// subparts; Rust's from_utf8_lossy).
std::string well_formed(std::string_view bytes);

/// Calls f(character, code point) for each character of a well-formed text.
template <class F>
void for_each_character(std::string_view text, F f) {
    while (!text.empty()) {
        const std::size_t bytes = character_bytes(text);
        f(text.substr(0, bytes), code_point(text));
        text.remove_prefix(bytes);
    }
}

/// Counts the bytes of what a reader takes for one character (Unicode's UAX 29, extended) at the
/// front of a well-formed text that is not empty.
std::size_t grapheme_bytes(std::string_view text) noexcept;

/// Calls f(grapheme) for each.
template <class F>
void for_each_grapheme(std::string_view text, F f) {
    while (!text.empty()) {
        const std::size_t bytes = grapheme_bytes(text);
        f(text.substr(0, bytes));
        text.remove_prefix(bytes);
    }
}

bool is_space(char32_t c) noexcept;            ///< White_Space
bool is_number(char32_t c) noexcept;           ///< categories N*
bool is_punctuation(char32_t c) noexcept;      ///< ASCII's punctuation and symbols, categories P*
bool is_mark(char32_t c) noexcept;             ///< categories M*
bool is_nonspacing_mark(char32_t c) noexcept;  ///< category Mn
bool is_other(char32_t c) noexcept;            ///< control, format, private use
/// the blocks BERT sets apart: CJK, without kana and hangul
bool is_ideograph_of_bert(char32_t c) noexcept;

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalized(const std::string& text, NormalForm form);
/// Makes lower case of each character by itself, so there is no final sigma.
std::string lower_case(std::string_view text);

}  // namespace vkf::text
