// SPDX-License-Identifier: Apache-2.0
#include "text/jinja.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";
constexpr std::size_t npos = std::string_view::npos;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

std::string_view without_space_before(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    return text;
}

std::string_view without_space_behind(std::string_view text) {
    const std::size_t last = text.find_last_not_of(kBlanks);
    return text.substr(0, last == npos ? 0 : last + 1);
}

/// Behind the string that begins here.
std::size_t after_string(std::string_view code, std::size_t at) {
    const char quote = code[at];
    for (++at; at < code.size() && code[at] != quote; ++at) {
        at += code[at] == '\\' ? 1 : 0;
    }
    if (at >= code.size()) {
        throw Error("a string in it does not end");
    }
    return at + 1;
}

/// Where the tag ends whose code begins here: at "%}" or "}}", outside of strings and brackets.
std::size_t tag_end(std::string_view text, std::size_t at, std::string_view mark) {
    std::size_t depth = 0;
    while (at < text.size()) {
        const char c = text[at];
        if (depth == 0 && text.substr(at, 2) == mark) {
            return at;
        }
        if (c == '\'' || c == '"') {
            at = after_string(text, at);
            continue;
        }
        depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
        depth -= depth > 0 && (c == ')' || c == ']' || c == '}') ? 1 : 0;
        ++at;
    }
    throw Error("a tag in it does not end");
}

std::string_view first_word(std::string_view code) {
    std::size_t at = 0;
    const JinjaToken token = next_token(code, at);
    return token.kind == JinjaToken::Kind::name ? token.text : std::string_view();
}

/// True where a statement begins a block that an end of its name ends.
bool begins_block(std::string_view word, std::string_view code) {
    static constexpr std::string_view kBlocks[] = {"if",         "for",  "macro", "call",       "filter",
                                                   "generation", "with", "block", "autoescape", "trans"};
    return std::find(std::begin(kBlocks), std::end(kBlocks), word) != std::end(kBlocks) ||
           (word == "set" && code.find('=') == npos);
}

/// Puts together the parts of each block.
class Blocks {
public:
    explicit Blocks(std::vector<JinjaPiece>& pieces) : pieces_(pieces) {}

    void add(std::size_t index) {
        const std::string_view code = pieces_[index].code;
        const std::string_view word = first_word(code);
        if (word == "raw") {
            throw Error("it has {% raw %}");
        }
        if (word == "elif" || word == "else") {
            if (open_.empty() || (open_.back().word != "if" && open_.back().word != "for")) {
                throw Error("{% " + shown(code) + " %} is in no block");
            }
            go_on(index);
        } else if (word.starts_with("end")) {
            if (open_.empty() || open_.back().word != word.substr(3)) {
                throw Error("{% " + shown(code) + " %} ends no block");
            }
            go_on(index);
            open_.pop_back();
        } else if (begins_block(word, code)) {
            if (open_.size() == kDeepestBlock) {
                throw Error("its blocks are nested deeper than " + std::to_string(kDeepestBlock));
            }
            open_.push_back({word, index});
        }
    }

    void end() const {
        if (!open_.empty()) {
            throw Error("{% " + shown(pieces_[open_.back().last].code) + " %} has no end");
        }
    }

private:
    static constexpr std::size_t kDeepestBlock = 64;

    void go_on(std::size_t index) {
        pieces_[open_.back().last].next = index;
        open_.back().last = index;
    }

    struct Open {
        std::string_view word;
        std::size_t last;  ///< its piece that was seen last
    };
    std::vector<JinjaPiece>& pieces_;
    std::vector<Open> open_;
};

/// The number of `digits` digits, or fewer, in a base at the front of a text, and its length.
std::optional<std::pair<char32_t, std::size_t>> escaped_number(std::string_view text, std::size_t digits, int base) {
    std::uint32_t value = 0;
    const std::string_view part = text.substr(0, digits);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value, base);
    const auto length = static_cast<std::size_t>(end - part.data());
    if (error != std::errc() || (base == 16 && length != digits) || value > 0x10ffff ||
        (value >= 0xd800 && value <= 0xdfff)) {
        return std::nullopt;
    }
    return std::pair(static_cast<char32_t>(value), length);
}

}  // namespace

std::string jinja_lines(std::string_view text) {
    std::string lines;
    lines.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\r') {
            lines += text[i];
        } else if (text.substr(i + 1, 1) != "\n") {
            lines += '\n';
        }
    }
    if (lines.ends_with('\n')) {
        lines.pop_back();
    }
    return lines;
}

std::vector<JinjaPiece> cut_jinja(std::string_view lines) {
    std::vector<JinjaPiece> pieces;
    Blocks blocks(pieces);
    std::size_t at = 0;
    bool line_begins = true, strip_front = false;
    while (true) {
        std::size_t tag = lines.find('{', at);
        while (tag != npos && lines.substr(tag + 1, 1).find_first_of("%{#") == npos) {
            tag = lines.find('{', tag + 1);
        }
        const char kind = tag == npos ? '\0' : lines[tag + 1];
        const std::size_t sign = tag == npos ? npos : tag + 2;
        const char before = sign < lines.size() ? lines[sign] : '\0';
        std::string_view text = lines.substr(at, tag == npos ? npos : tag - at);
        if (strip_front) {
            text = without_space_before(text);
        }
        if (before == '-') {
            text = without_space_behind(text);
        } else if (kind != '\0' && kind != '{' && before != '+') {  // lstrip_blocks
            const std::size_t line = text.rfind('\n');
            const std::string_view last = line == npos ? text : text.substr(line + 1);
            if ((line != npos || line_begins) && without_space_behind(last).empty()) {
                text.remove_suffix(last.size());
            }
        }
        if (!text.empty()) {
            pieces.push_back({JinjaPiece::Kind::text, text});
        }
        if (tag == npos) {
            break;
        }
        const std::size_t begin = sign + (before == '-' || (before == '+' && kind != '{') ? 1 : 0);
        const std::size_t end = kind == '#' ? lines.find("#}", std::min(begin, lines.size()))
                                            : tag_end(lines, begin, kind == '{' ? "}}" : "%}");
        if (end == npos) {
            throw Error("a comment in it does not end");
        }
        const char behind = end > begin ? lines[end - 1] : '\0';
        const bool signed_end = behind == '-' || (behind == '+' && kind != '{');
        if (kind != '#') {
            const std::string_view code = lines.substr(begin, end - begin - (signed_end ? 1 : 0));
            pieces.push_back({kind == '{' ? JinjaPiece::Kind::output : JinjaPiece::Kind::statement,
                              without_space_behind(without_space_before(code))});
            if (kind == '%') {
                blocks.add(pieces.size() - 1);
            }
        }
        at = end + 2;
        strip_front = behind == '-';
        line_begins = kind != '{' && !signed_end && lines.substr(at, 1) == "\n";  // trim_blocks
        at += line_begins ? 1 : 0;
    }
    blocks.end();
    return pieces;
}

JinjaToken next_token(std::string_view code, std::size_t& at) {
    at = std::min(code.find_first_not_of(kBlanks, at), code.size());
    const std::size_t begin = at;
    if (at == code.size()) {
        return {};
    }
    JinjaToken::Kind kind = JinjaToken::Kind::sign;
    if (code[at] == '\'' || code[at] == '"') {
        kind = JinjaToken::Kind::string;
        at = after_string(code, at);
    } else if (begins_name(code[at])) {
        kind = JinjaToken::Kind::name;
        while (at < code.size() && (begins_name(code[at]) || is_digit(code[at]))) {
            ++at;
        }
    } else if (is_digit(code[at])) {
        kind = JinjaToken::Kind::number;
        while (at < code.size() && is_digit(code[at])) {
            ++at;
        }
    } else {
        static constexpr std::string_view kSigns[] = {"==", "!=", "<=", ">=", "//", "**"};
        const std::string_view two = code.substr(at, 2);
        at += std::find(std::begin(kSigns), std::end(kSigns), two) != std::end(kSigns) ? 2 : 1;
    }
    return {kind, code.substr(begin, at - begin)};
}

std::string unescaped(std::string_view string) {
    const std::string_view inner = string.substr(1, string.size() - 2);
    static constexpr std::string_view kEscapes = "ntrabfv\\'\"", kMeant = "\n\t\r\a\b\f\v\\'\"";
    std::string out;
    for (std::size_t at = 0; at < inner.size(); ++at) {
        if (inner[at] != '\\') {
            out += inner[at];
            continue;
        }
        const char c = inner[++at];
        if (const std::size_t simple = kEscapes.find(c); simple != npos) {
            out += kMeant[simple];
        } else if (c == '\n') {  // the line goes on
        } else if (c == 'x' || c == 'u' || c == 'U' || (c >= '0' && c <= '7')) {
            const bool octal = is_digit(c);
            const auto number = octal ? escaped_number(inner.substr(at), 3, 8)
                                      : escaped_number(inner.substr(at + 1),
                                                       c == 'x'   ? 2
                                                       : c == 'u' ? 4
                                                                  : 8,
                                                       16);
            if (!number) {
                throw Error("the string " + shown(string) + " has an escape that is none");
            }
            append_utf8(out, number->first);
            at += octal ? number->second - 1 : number->second;
        } else if (c == 'N') {
            throw Error("the string " + shown(string) + " has a character by its name");
        } else {
            out += {'\\', c};
        }
    }
    return out;
}

std::string shown(std::string_view code) {
    constexpr std::size_t kMost = 120;
    std::size_t end = std::min(code.size(), kMost);
    // whole characters
    while (end < code.size() && (static_cast<unsigned char>(code[end]) & 0xc0) == 0x80) {
        --end;
    }
    std::string text;
    for (const char c : code.substr(0, end)) {
        c == '\n' ? text += "\\n" : text += c;
    }
    return end < code.size() ? text + "..." : text;
}

}  // namespace vkf::text
