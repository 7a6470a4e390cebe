// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <map>

#include "text/byte_level.h"
#include "text/precompiled.h"
#include "text/reference_tables.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

/// The text without the characters for which it is true.
template <class Unwanted>
std::string without(std::string_view text, Unwanted unwanted) {
    std::string out;
    for_each_character(text, [&](std::string_view character, char32_t c) {
        if (!unwanted(c)) {
            out += character;
        }
    });
    return out;
}

/// Gives its text without the characters for which it is true.
template <class Unwanted>
Normalized left_out(Normalized given, Unwanted unwanted) {
    given.keeps_front = given.keeps_front && (given.text.empty() || !unwanted(code_point(given.text)));
    given.text = without(given.text, unwanted);
    return given;
}

/// A step after which the text begins where it did.
template <class F>
Normalizer keeping_front(F f) {
    return [f = std::move(f)](Normalized given) {
        given.text = f(given.text);
        return given;
    };
}

// --- BERT's (Devlin et al. 2019) -----------------------------------------------------------------

bool is_control_line(char32_t c) { return c == '\t' || c == '\n' || c == '\r'; }

bool is_unclean(char32_t c) { return c == 0 || c == 0xFFFD || (is_other(c) && !is_control_line(c)); }

std::string with_plain_spaces(std::string_view text) {
    std::string out;
    for_each_character(text, [&](std::string_view character, char32_t c) {
        out += is_space(c) || is_control_line(c) ? std::string_view(" ") : character;
    });
    return out;
}

std::string with_spaces_around_ideographs(std::string_view text) {
    std::string out;
    for_each_character(text, [&](std::string_view character, char32_t c) {
        const bool ideograph = is_ideograph_of_bert(c);
        out += ideograph ? " " : "";
        out += character;
        out += ideograph ? " " : "";
    });
    return out;
}

Normalizer bert_normalizer(const Json& part) {
    const bool clean = member_or(part, "clean_text", true);
    const bool chinese = member_or(part, "handle_chinese_chars", true);
    const bool lower = member_or(part, "lowercase", true);
    const bool accents = member_or(part, "strip_accents", lower);
    return [=](Normalized given) {
        if (clean) {
            given = left_out(std::move(given), is_unclean);
            given.text = with_plain_spaces(given.text);
        }
        given.text = chinese ? with_spaces_around_ideographs(given.text) : given.text;
        if (accents) {
            given.text = normalized(given.text, NormalForm::nfd);
            given = left_out(std::move(given), is_nonspacing_mark);
        }
        given.text = lower ? lower_case(given.text) : given.text;
        return given;
    };
}

/// SentencePiece's first step: controls are left out, and what parts words is a space.
Normalized nmt(Normalized given) {
    static constexpr Range kControls[] = {{0x01, 0x08}, {0x0B, 0x0B}, {0x0E, 0x1F},
                                          {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
    static constexpr Range kSpaces[] = {{0x09, 0x0A},     {0x0C, 0x0D},     {0x1680, 0x1680}, {0x200B, 0x200F},
                                        {0x2028, 0x2029}, {0x2581, 0x2581}, {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
    given = left_out(std::move(given), [](char32_t c) { return within(kControls, c); });
    std::string out;
    for_each_character(given.text, [&](std::string_view character, char32_t c) {
        out += within(kSpaces, c) ? std::string_view(" ") : character;
    });
    given.text = std::move(out);
    return given;
}

Normalized strip(Normalized given, bool left, bool right) {
    given.keeps_front = given.keeps_front && !(left && !given.text.empty() && is_space(code_point(given.text)));
    given.text = stripped(given.text, left, right);
    return given;
}

std::string replaced(const std::string& text, const std::vector<Part>& parts, const std::string& by) {
    constexpr std::size_t kMostBytes = 4096;
    if (by.size() > kMostBytes) {
        throw Error(
            "it replaces by a text of " + std::to_string(by.size()) + " bytes, more than " + std::to_string(kMostBytes),
            "tokenizer");
    }
    std::string out;
    for (const Part& p : parts) {
        const std::string_view part =
            p.match ? std::string_view(by) : std::string_view(text).substr(p.begin, p.end - p.begin);
        require_growth(out.size() + part.size(), text.size());
        out += part;
    }
    return out;
}

/// What stands for several characters is `tokenizers`' last of them.
Normalized replace(Normalized given, const Finder& finder, const std::string& by) {
    const std::vector<Part> parts = finder(given.text);
    const bool at_front = !parts.empty() && parts.front().match;
    const std::size_t end = at_front ? parts.front().end : 0;  // 0: nothing is taken away there
    const bool keeps = end == 0 || (!by.empty() && end == character_bytes(given.text));
    return {replaced(given.text, parts, by), given.keeps_front && keeps};
}

Normalizer sequence(const Json& part) {
    return [all = sequence_of(part, "normalizers", make_normalizer)](Normalized text) {
        const std::size_t given = text.text.size();
        for (const Normalizer& n : all) {
            text = n(std::move(text));
            require_growth(text.text.size(), given);
        }
        return text;
    };
}

}  // namespace

std::string stripped(const std::string& text, bool left, bool right) {
    std::size_t begin = text.size();
    std::size_t end = 0;
    std::size_t at = 0;
    for_each_character(text, [&](std::string_view character, char32_t c) {
        if (!is_space(c)) {
            begin = std::min(begin, at);
            end = at + character.size();
        }
        at += character.size();
    });
    if (end == 0) {  // nothing but space
        return left || right ? std::string() : text;
    }
    begin = left ? begin : 0;
    return text.substr(begin, (right ? end : text.size()) - begin);
}

Finder make_finder(const Json& pattern) {
    if (pattern.is_object() && pattern.contains("String")) {
        return text_finder(pattern.at("String").get<std::string>());
    }
    if (pattern.is_object() && pattern.contains("Regex")) {
        return regex_finder(pattern.at("Regex").get<std::string>());
    }
    refuse("pattern", pattern.dump());
}

void require_growth(std::size_t bytes, std::size_t text_bytes) {
    if (bytes > (std::size_t{1} << 16) && bytes / 32 > text_bytes) {
        throw Error("it makes " + std::to_string(bytes) + " bytes of a text of " + std::to_string(text_bytes),
                    "tokenizer");
    }
}

std::string replace_all(const std::string& text, const Finder& finder, const std::string& by) {
    return replaced(text, finder(text), by);
}

Normalizer make_normalizer(const Json& part) {
    const std::string type = type_of(part);
    static const std::map<std::string, NormalForm> kForms{
        {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
    if (type.empty()) {
        return [](Normalized given) { return given; };
    }
    if (const auto form = kForms.find(type); form != kForms.end()) {
        return keeping_front([f = form->second](const std::string& text) { return normalized(text, f); });
    }
    if (type == "Sequence") {
        return sequence(part);
    }
    if (type == "Lowercase") {
        return keeping_front([](const std::string& text) { return lower_case(text); });
    }
    if (type == "Strip") {
        return [left = part.at("strip_left").get<bool>(), right = part.at("strip_right").get<bool>()](
                   Normalized given) { return strip(std::move(given), left, right); };
    }
    if (type == "StripAccents") {
        return [](Normalized given) { return left_out(std::move(given), is_mark); };
    }
    if (type == "Prepend") {
        return keeping_front([by = part.at("prepend").get<std::string>()](const std::string& text) {
            return text.empty() ? text : by + text;
        });
    }
    if (type == "Replace") {
        return [finder = make_finder(part.at("pattern")), by = part.at("content").get<std::string>()](
                   Normalized given) { return replace(std::move(given), finder, by); };
    }
    if (type == "ByteLevel") {
        return keeping_front([](const std::string& text) { return bytes_to_characters(text); });
    }
    if (type == "Precompiled") {
        return keeping_front(make_precompiled(part.at("precompiled_charsmap").get<std::string>()));
    }
    if (type == "Nmt") {
        return nmt;
    }
    if (type == "BertNormalizer") {
        return bert_normalizer(part);
    }
    refuse("normalizer", type);
}

}  // namespace vkf::text
