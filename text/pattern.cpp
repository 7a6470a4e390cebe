// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "runtime/base/error.h"
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
        pcre2_set_match_limit(limits_.get(), kMostSteps);
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
        if (!data) {
            throw std::bad_alloc();
        }
        std::vector<Part> parts;
        std::size_t done = 0;
        for (std::size_t at = 0; !text.empty() && at <= text.size();) {
            const int found = match(text, at, data.get());
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
    int match(std::string_view text, std::size_t at, pcre2_match_data* data) const {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        const int found = pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, limits_.get());
        if (found != PCRE2_ERROR_JIT_STACKLIMIT) {
            return found;
        }
        return pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                           limits_.get());
    }

    [[noreturn]] void fail(int error) const {
        std::array<PCRE2_UCHAR, 256> message{};
        pcre2_get_error_message(error, message.data(), message.size());
        throw Error(std::string("the pattern ") + expression_ + ": " + reinterpret_cast<const char*>(message.data()),
                    "tokenizer");
    }

    static constexpr std::size_t kMostWrittenBytes = 1u << 14;
    static constexpr PCRE2_SIZE kMostPatternBytes = 1u << 16;
    static constexpr std::uint32_t kMostSteps = 10'000'000;        ///< of a match
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
        if (c == '\\') {
            escape();
        } else if (in_class_) {
            class_step(c);
        } else {
            outer_step(c);
        }
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
        out_ += c;
        ++at_;
    }

    void outer_step(char c) {
        if (next_is("(?m") || next_is("(?-m") || next_is("(?im") || next_is("(?mi")) {
            refuse("the option m");
        }
        if (c == '}' && at_ + 1 < in_.size() && in_[at_ + 1] == '+') {
            refuse("a repeated interval");
        }
        out_ += c;
        ++at_;
        if (c == '[') {
            in_class_ = true;
            if (at_ < in_.size() && in_[at_] == '^') {
                out_ += '^';
                ++at_;
            }
            class_begin_ = at_;
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
            case 'u': return unicode_escape();
            case 'p':
            case 'P':
            case 'x': return braced_escape();
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
            case 'N': refuse(std::string("\\") + c);
            default: out_ += {'\\', c};
        }
        at_ += 2;
    }

    /// \p{...}, \x{...}, or without braces
    void braced_escape() {
        const std::size_t end = at_ + 2 < in_.size() && in_[at_ + 2] == '{' ? in_.find('}', at_) : at_ + 1;
        if (end == std::string::npos) {
            refuse("a brace that is not closed");
        }
        const std::string whole = in_.substr(at_, end + 1 - at_);
        const std::size_t name = whole.find_first_not_of("{^", 2);
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

    const std::string& in_;
    std::string out_;
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
