// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "runtime/base/error.h"
#include "text/reference_tables.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

/// A compiled expression; matching is possible from several threads.
class Regex {
public:
    explicit Regex(const std::string& expression) : expression_(expression) {
        if (expression.size() > kMostWrittenBytes) {  // each of which may become two hundred
            throw Error("the pattern of " + std::to_string(expression.size()) + " bytes is too long", "tokenizer");
        }
        const std::string translated = pcre2_expression(expression);
        int error = 0;
        PCRE2_SIZE at = 0;
        const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
            pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
        if (!context || !limits_) {
            throw std::bad_alloc();
        }
        pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(context.get(), kMostPatternBytes);
        pcre2_set_heap_limit(limits_.get(), kMostHeapKibibytes);
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error, &at,
                                  context.get()));
        if (!code_) {
            fail(error);
        }
        // An expression that cannot become machine code is interpreted.
        pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    }

    std::vector<Part> find(std::string_view text) const {
        const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
            pcre2_match_data_create_from_pattern(code_.get(), nullptr), pcre2_match_data_free);
        // a context of its own, for other threads match other texts
        const std::unique_ptr<pcre2_match_context, Free> limits(pcre2_match_context_copy(limits_.get()));
        if (!data || !limits) {
            throw std::bad_alloc();
        }
        pcre2_set_match_limit(limits.get(), most_steps(text.size()));
        std::vector<Part> parts;
        std::size_t done = 0;
        for (std::size_t at = 0; !text.empty() && at <= text.size();) {
            const int found = match(text, at, data.get(), limits.get());
            if (found == PCRE2_ERROR_NOMATCH) {
                break;
            }
            if (found < 0) {
                fail(found);
            }
            const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
            const std::size_t begin = ends[0], end = ends[1];
            // An empty match counts where the last did not end.
            if (end > begin || parts.empty() || !parts.back().match || end > done) {
                if (begin > done) {
                    parts.push_back({done, begin, false});
                }
                parts.push_back({begin, end, true});
                done = end;
            }
            // From its place it would be found again.
            at = end > begin ? end : end + (end < text.size() ? character_bytes(text.substr(end)) : 1);
        }
        if (done < text.size()) {
            parts.push_back({done, text.size(), false});
        }
        return parts;
    }

private:
    int match(std::string_view text, std::size_t at, pcre2_match_data* data, pcre2_match_context* limits) const {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        const int found = pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, limits);
        if (found != PCRE2_ERROR_JIT_STACKLIMIT) {
            return found;
        }
        return pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, limits);
    }

    [[noreturn]] void fail(int error) const {
        std::array<PCRE2_UCHAR, 256> message{};
        pcre2_get_error_message(error, message.data(), message.size());
        throw Error(std::string("the pattern ") + expression_ + ": " + reinterpret_cast<const char*>(message.data()),
                    "tokenizer");
    }

    static constexpr std::size_t kMostWrittenBytes = 1u << 14;
    static constexpr PCRE2_SIZE kMostPatternBytes = 1u << 16;
    /// Steps that a match may take. A long run of spaces takes one for each of them.
    static std::uint32_t most_steps(std::size_t bytes) noexcept {
        constexpr std::size_t kShort = 10'000'000, kEachByte = 16, kMost = 0xFFFFFFFFu;
        return static_cast<std::uint32_t>(bytes > kMost / kEachByte ? kMost : std::max(kShort, kEachByte * bytes));
    }
    static constexpr std::uint32_t kMostHeapKibibytes = 1u << 16;  ///< in which a match backtracks

    struct Free {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
        void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    };
    std::string expression_;
    std::unique_ptr<pcre2_match_context, Free> limits_{pcre2_match_context_create(nullptr)};
    std::unique_ptr<pcre2_code, Free> code_;
};

/// True for a script's name that PCRE2 (10.40 and later) would read as Script_Extensions, and
/// Oniguruma reads as Script.
bool is_script(const std::string& name) {
    const std::string expression = "\\p{sc:" + name + "}";
    int error = 0;
    PCRE2_SIZE at = 0;
    const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF, &error, &at,
                      nullptr),
        pcre2_code_free);
    if (!code && error == PCRE2_ERROR_HEAP_FAILED) {
        throw std::bad_alloc();
    }
    return code != nullptr;
}

/// Walks through an expression and writes what PCRE2 reads in the same way.
class Translation {
public:
    explicit Translation(const std::string& expression) : in_(expression) {}

    std::string run() {
        while (at_ < in_.size()) {
            step();
        }
        return out_;
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw Error("the pattern " + in_ + " has " + what + ", which is not supported", "tokenizer");
    }

    bool next_is(std::string_view text) const { return std::string_view(in_).substr(at_).starts_with(text); }

    void step() {
        const char c = in_[at_];
        if (groups_.back().ignores_case) {
            refuse_folding();
        }
        if (c == '\\') {
            alternative_begins_ = false;
            escape();
        } else if (in_class_) {
            class_step(c);
        } else {
            outer_step(c);
        }
    }

    void copy(std::size_t bytes) {
        out_ += in_.substr(at_, bytes);
        at_ += bytes;
    }

    void class_step(char c) {
        if (c == '[') {
            refuse("a class inside a class");
        }
        if (next_is("&&")) {
            refuse("an intersection of classes");
        }
        const bool first = at_ == class_begin_;
        in_class_ = c != ']' || first;
        copy(1);
    }

    void outer_step(char c) {
        if (next_is("(?m") || next_is("(?-m") || next_is("(?im") || next_is("(?mi")) {
            refuse("the option m");
        }
        if (c == '}' && at_ + 1 < in_.size() && in_[at_ + 1] == '+') {
            refuse("a repeated interval");
        }
        if (c == '(') {
            return group();
        }
        if (c == ')' && groups_.size() > 1) {
            groups_.pop_back();
        }
        if (c == '|' && groups_.back().option_amid) {
            refuse("an option before |");  // which Oniguruma lets reach to the group's end
        }
        if (c == '{') {
            return interval();
        }
        alternative_begins_ = c == '|';
        copy(1);
        if (c == '[') {
            in_class_ = true;
            if (at_ < in_.size() && in_[at_] == '^') {
                copy(1);
            }
            class_begin_ = at_;
        }
    }

    /// A group's beginning, an option by itself, as "(?i)", or a comment.
    void group() {
        const std::size_t closed = std::min(in_.find(')', at_), in_.size() - 1);
        if (next_is("(?#")) {
            return copy(closed + 1 - at_);
        }
        const std::size_t sign = next_is("(?") ? in_.find_first_not_of("adimnsuxy-", at_ + 2) : std::string::npos;
        Group inner{.ignores_case = groups_.back().ignores_case};
        if (sign != std::string::npos && (in_[sign] == ')' || in_[sign] == ':')) {
            const std::string options = in_.substr(at_ + 2, sign - at_ - 2);
            const std::size_t i = options.find('i');
            inner.ignores_case = i == std::string::npos ? inner.ignores_case : i < options.find('-');
        }
        if (sign != std::string::npos && in_[sign] == ')') {
            Group& around = groups_.back();
            around = {.ignores_case = inner.ignores_case, .option_amid = around.option_amid || !alternative_begins_};
            return copy(closed + 1 - at_);
        }
        groups_.push_back(inner);
        copy((sign == std::string::npos ? at_ + 1 : sign + 1) - at_);
        alternative_begins_ = true;
        if (sign != std::string::npos && in_[sign] == '<') {  // a name, or looking behind
            const bool behind = next_is("=") || next_is("!");
            copy(behind ? 1 : std::min(in_.find('>', at_), in_.size() - 1) + 1 - at_);
        }
    }

    /// "{,n}" is "{0,n}"; "{n}?", which a regular expression elsewhere reads as "{n}", may match
    /// nothing.
    void interval() {
        alternative_begins_ = false;
        const std::size_t comma = in_.find_first_not_of(kDigits, at_ + 1);
        const std::size_t end = std::min(in_.find_first_not_of(kDigits, comma + 1), in_.size());
        if (comma > at_ + 1 && in_.compare(std::min(comma, in_.size()), 2, "}?") == 0) {
            refuse("an interval of one number before ?");
        }
        if (next_is("{,") && end > at_ + 2 && end < in_.size() && in_[end] == '}') {
            out_ += "{0";
            ++at_;
        }
        copy(1);
    }

    /// Refuses what Oniguruma takes for several characters, or for one, where case is ignored.
    void refuse_folding() const {
        static constexpr Range kFolded[] = {{0xDF, 0xDF},     {0x130, 0x130},   {0x149, 0x149},  {0x1F0, 0x1F0},
                                            {0x390, 0x390},   {0x3B0, 0x3B0},   {0x587, 0x587},  {0x1E96, 0x1E9A},
                                            {0x1E9E, 0x1E9E}, {0x1F50, 0x1FFC}, {0xFB00, 0xFB17}};
        const std::string_view rest = std::string_view(in_).substr(at_);
        if ((static_cast<unsigned char>(rest[0]) & 0xC0) != 0x80 && within(kFolded, code_point(rest))) {
            refuse("\"" + std::string(rest.substr(0, character_bytes(rest))) + "\" where case is ignored");
        }
        for (const std::string_view pair : {"ss", "ff", "fi", "fl", "st"}) {
            const bool here = rest.size() > 1 && (rest[0] | 0x20) == pair[0] && (rest[1] | 0x20) == pair[1];
            if (here && !in_class_) {
                refuse("\"" + std::string(pair) + "\" where case is ignored, which stands for one character, too");
            }
        }
    }

    /// Oniguruma's \w inside a class: Alphabetic, marks, decimal digits, connectors.
    static constexpr const char* kClassWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
    /// Outside it holds Latin-1's other numbers, too.
    static constexpr const char* kLatinNumbers = R"(\xb2\xb3\xb9\xbc-\xbe)";

    void escape() {
        if (at_ + 1 == in_.size()) {
            refuse("a backslash at its end");
        }
        const char c = in_[at_ + 1];
        const std::string word = std::string(kClassWord) + kLatinNumbers;
        switch (c) {
            case 's': out_ += R"(\p{White_Space})"; break;
            case 'S': out_ += R"(\P{White_Space})"; break;
            case 'w': out_ += in_class_ ? kClassWord : "[" + word + "]"; break;
            case 'W':
                if (in_class_) {
                    refuse("\\W in a class");
                }
                out_ += "[^" + word + "]";
                break;
            case 'b':
                out_ += in_class_ ? "\\b"
                                  : "(?:(?<=[" + word + "])(?![" + word + "])|(?<![" + word + "])(?=[" + word + "]))";
                break;
            case 'v': out_ += R"(\x0b)"; break;
            case 'u': return unicode_escape();
            case 'x': require_character(); [[fallthrough]];
            case 'p':
            case 'P': return braced_escape();
            case 'B':
            case 'h':
            case 'H':
            case 'G':
            case 'K':
            case 'R':
            case 'X':
            case 'y':
            case 'Y':
            case 'O':
            case 'C':
            case 'Q':
            case 'E':
            case 'N': refuse(std::string("\\") + c);
            default: out_ += {'\\', c};
        }
        at_ += 2;
    }

    /// \xHH is a byte, of a character of several above 7F.
    void require_character() const {
        const std::string digits = in_.substr(at_ + 2, 2);
        const bool byte = !digits.starts_with("{");
        if (byte && (digits.empty() || std::isxdigit(static_cast<unsigned char>(digits[0])) == 0)) {
            refuse("\\x without digits");
        }
        if (byte && std::strtol(digits.c_str(), nullptr, 16) > 0x7F) {
            refuse("the byte \\x" + digits);
        }
    }

    /// True for the property of letters of one case, whose other cases Oniguruma takes too where
    /// case is ignored, and PCRE2 does not.
    static bool is_of_one_case(const std::string& property) {
        std::string name;
        for (const char c : property) {
            if (std::string_view("{}^ _-").find(c) == std::string_view::npos) {
                name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
            }
        }
        constexpr std::array<std::string_view, 7> kNames{"lu", "ll", "lt", "upper", "lower", "uppercase", "lowercase"};
        return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
    }

    /// \p{...}, \x{...}, or without braces
    void braced_escape() {
        const std::size_t end = at_ + 2 < in_.size() && in_[at_ + 2] == '{' ? in_.find('}', at_) : at_ + 1;
        if (end == std::string::npos) {
            refuse("a brace that is not closed");
        }
        const std::string whole = in_.substr(at_, end + 1 - at_);
        const std::size_t name = whole.find_first_not_of("{^", 2);
        if (in_class_ && groups_.back().ignores_case && whole[1] != 'x' && is_of_one_case(whole.substr(2))) {
            refuse(whole + " in a class where case is ignored");
        }
        const bool script = whole[1] != 'x' && name < whole.size() && is_script(whole.substr(name, end - at_ - name));
        out_ += script ? whole.substr(0, name) + "sc:" + whole.substr(name) : whole;
        at_ = end + 1;
    }

    /// \uHHHH
    void unicode_escape() {
        const std::string digits = in_.substr(at_ + 2, 4);
        if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
            refuse("\\u without four digits");
        }
        out_ += "\\x{" + digits + "}";
        at_ += 6;
    }

    static constexpr const char* kDigits = "0123456789";

    struct Group {
        bool ignores_case = false;
        bool option_amid = false;  ///< an option by itself stands behind something
    };

    const std::string& in_;
    std::string out_;
    std::vector<Group> groups_{1};    ///< those that are open, in the whole
    bool alternative_begins_ = true;  ///< nothing but options stands before
    std::size_t at_ = 0;
    std::size_t class_begin_ = 0;
    bool in_class_ = false;
};

/// True where a part and the one before it become one piece.
bool joins(const std::vector<Part>& parts, std::size_t i, SplitBehavior behavior) {
    const bool previous = parts[i - 1].match;
    const bool now = parts[i].match;
    switch (behavior) {
        case SplitBehavior::contiguous: return previous == now;
        case SplitBehavior::merged_with_previous: return now && !previous;
        case SplitBehavior::merged_with_next: return previous && !now;
        default: return false;
    }
}

}  // namespace

std::string pcre2_expression(const std::string& expression) { return Translation(expression).run(); }

Finder regex_finder(const std::string& expression) {
    return [regex = std::make_shared<const Regex>(expression)](std::string_view text) { return regex->find(text); };
}

Finder text_finder(const std::string& wanted) {
    return [wanted](std::string_view text) {
        std::vector<Part> parts;
        std::size_t done = 0;
        while (!wanted.empty() && done < text.size()) {
            const std::size_t at = text.find(wanted, done);
            if (at == std::string_view::npos) {
                break;
            }
            if (at > done) {
                parts.push_back({done, at, false});
            }
            done = at + wanted.size();
            parts.push_back({at, done, true});
        }
        if (done < text.size()) {
            parts.push_back({done, text.size(), false});
        }
        return parts;
    };
}

Finder character_finder(bool (*wanted)(char32_t)) {
    return [wanted](std::string_view text) {
        std::vector<Part> parts;
        std::size_t at = 0;
        for_each_character(text, [&](std::string_view character, char32_t c) {
            const bool match = wanted(c);
            if (match || parts.empty() || parts.back().match) {
                parts.push_back({at, at, match});
            }
            at += character.size();
            parts.back().end = at;
        });
        return parts;
    };
}

std::vector<std::string_view> split(std::string_view text, const Finder& finder, SplitBehavior behavior, bool invert) {
    std::vector<Part> parts = finder(text);
    for (Part& p : parts) {
        p.match = p.match != invert;
    }
    std::vector<std::string_view> pieces;  // those of empty matches part others
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t bytes = parts[i].end - parts[i].begin;
        if (i > 0 && joins(parts, i, behavior)) {
            pieces.back() = {pieces.back().data(), pieces.back().size() + bytes};
        } else if (behavior != SplitBehavior::removed || !parts[i].match) {
            pieces.push_back(text.substr(parts[i].begin, bytes));
        }
    }
    std::erase_if(pieces, [](std::string_view piece) { return piece.empty(); });
    return pieces;
}

}  // namespace vkf::text
