// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/error.h"
#include "text/reference_tables.h"

namespace vkf::text {

namespace {

struct Scan {
    std::size_t bytes = 0;  ///< bytes of the character, or of the broken part of one
    bool good = false;
};

/// The character at the front, or the longest part that could have begun one (Unicode 15, table
/// 3-7).
Scan scan(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) {
        return {1, true};
    }
    const std::size_t want = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (want == 0) {
        return {1, false};
    }
    const unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (std::size_t i = 1; i < want; ++i) {
        if (i == text.size() || byte(i) < (i == 1 ? least : 0x80) || byte(i) > (i == 1 ? most : 0xBF)) {
            return {i, false};
        }
    }
    return {want, true};
}

utf8proc_category_t category(char32_t c) noexcept { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool between(char32_t c, char32_t first, char32_t last) noexcept { return c >= first && c <= last; }

[[noreturn]] void fail_to_normalize(utf8proc_ssize_t error) {
    throw Error(std::string("a text cannot be normalized: ") + utf8proc_errmsg(error), "tokenizer");
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text, utf8proc_option_t options) {
    std::vector<utf8proc_int32_t> characters;
    characters.reserve(text.size());
    std::array<utf8proc_int32_t, 32> parts{};  // no character has more than 18
    int last = 0;
    for_each_character(text, [&](std::string_view, char32_t c) {
        const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                                   static_cast<utf8proc_ssize_t>(parts.size()), options, &last);
        if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
            fail_to_normalize(count < 0 ? count : UTF8PROC_ERROR_OVERFLOW);
        }
        characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    });
    return characters;
}

/// Brings marks that follow each other into Unicode's canonical order. utf8proc_map() exchanges
/// neighbours, which takes the square of their number.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
    const auto order = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    const auto is_starter = [&](utf8proc_int32_t c) { return order(c) == 0; };
    const auto is_before = [&](utf8proc_int32_t a, utf8proc_int32_t b) { return order(a) < order(b); };
    for (auto begin = characters.begin(); begin != characters.end();) {
        begin = std::find_if_not(begin, characters.end(), is_starter);
        const auto end = std::find_if(begin, characters.end(), is_starter);
        if (end - begin > 1) {
            std::stable_sort(begin, end, is_before);
        }
        begin = end;
    }
}

}  // namespace

std::size_t malformed_at(std::string_view text) noexcept {
    for (std::size_t at = 0; at < text.size();) {
        const Scan s = scan(text.substr(at));
        if (!s.good) {
            return at;
        }
        at += s.bytes;
    }
    return std::string_view::npos;
}

std::size_t character_bytes(std::string_view text) noexcept { return scan(text).bytes; }

char32_t code_point(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
    const std::size_t bytes = character_bytes(text);
    char32_t c = bytes == 1 ? byte(0) : byte(0) & (0x7Fu >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        c = c << 6 | (byte(i) & 0x3F);
    }
    return c;
}

void append_utf8(std::string& text, char32_t c) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
    text.append(bytes.begin(), bytes.begin() + count);
}

std::string well_formed(std::string_view bytes) {
    std::string out;
    while (!bytes.empty()) {
        const Scan s = scan(bytes);
        out += s.good ? bytes.substr(0, s.bytes) : std::string_view("\xEF\xBF\xBD");
        bytes.remove_prefix(s.bytes);
    }
    return out;
}

std::size_t grapheme_bytes(std::string_view text) noexcept {
    std::size_t at = character_bytes(text);
    utf8proc_int32_t state = 0;
    for (auto last = static_cast<utf8proc_int32_t>(code_point(text)); at < text.size();) {
        const std::string_view rest = text.substr(at);
        const auto next = static_cast<utf8proc_int32_t>(code_point(rest));
        if (utf8proc_grapheme_break_stateful(last, next, &state)) {
            break;
        }
        last = next;
        at += character_bytes(rest);
    }
    return at;
}

bool is_space(char32_t c) noexcept {
    if (between(c, 0x09, 0x0D) || c == 0x85) {
        return true;
    }
    const utf8proc_category_t kind = category(c);
    return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

bool is_number(char32_t c) noexcept {
    const utf8proc_category_t kind = category(c);
    return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) noexcept {
    if (c < 0x80) {
        return between(c, '!', '/') || between(c, ':', '@') || between(c, '[', '`') || between(c, '{', '~');
    }
    const utf8proc_category_t kind = category(c);
    const bool punctuation = kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
    return punctuation ? !within(kNotPunctuation, c) : within(kAlsoPunctuation, c);
}

bool is_mark(char32_t c) noexcept {
    const utf8proc_category_t kind = category(c);
    const bool mark = kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
    return mark ? !within(kNotMark, c) : within(kAlsoMark, c);
}

bool is_nonspacing_mark(char32_t c) noexcept {
    return category(c) == UTF8PROC_CATEGORY_MN ? !within(kNotNonspacing, c) : within(kAlsoNonspacing, c);
}

bool is_other(char32_t c) noexcept {
    const utf8proc_category_t kind = category(c);
    const bool other = kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
    return other && !within(kNotOther, c);
}

bool is_ideograph_of_bert(char32_t c) noexcept {
    return between(c, 0x4E00, 0x9FFF) || between(c, 0x3400, 0x4DBF) || between(c, 0x20000, 0x2A6DF) ||
           between(c, 0x2A700, 0x2B73F) || between(c, 0x2B740, 0x2B81F) || between(c, 0x2B920, 0x2CEAF) ||
           between(c, 0xF900, 0xFAFF) || between(c, 0x2F800, 0x2FA1F);
}

std::string normalized(const std::string& text, NormalForm form) {
    const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
    const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
    const auto options = static_cast<utf8proc_option_t>(
        UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0));
    if (malformed_at(text) != std::string_view::npos) {
        fail_to_normalize(UTF8PROC_ERROR_INVALIDUTF8);
    }
    std::vector<utf8proc_int32_t> characters = decomposed(text, options);
    order_marks(characters);
    const auto count = static_cast<utf8proc_ssize_t>(characters.size());
    characters.resize(characters.size() + 1);  // utf8proc ends the bytes with 0
    const auto length = utf8proc_reencode(characters.data(), count, options);
    if (length < 0) {
        fail_to_normalize(length);
    }
    return {reinterpret_cast<const char*>(characters.data()), static_cast<std::size_t>(length)};
}

std::string lower_case(std::string_view text) {
    std::string out;
    for_each_character(text, [&](std::string_view, char32_t c) {
        if (c == 0x130) {  // the one whose lower case is two characters: i and a dot above
            out += "i\xCC\x87";
        } else {
            append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
        }
    });
    return out;
}

}  // namespace vkf::text
