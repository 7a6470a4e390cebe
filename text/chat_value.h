// SPDX-License-Identifier: Apache-2.0
// What a chat template's expressions give, as far as it is known before the messages are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vkf::text {

/// A part of the text that a template writes.
struct ChatPart {
    enum class Kind : std::uint8_t {
        literal,
        user,    ///< the content of the user's message
        system,  ///< of the system message, which is not empty
        day,     ///< "26 Jul 2024"
        strip,   ///< from here to its strip_end, space around is left out
        strip_end,
    };
    Kind kind = Kind::literal;
    std::string text;  ///< a literal's
};
using ChatText = std::vector<ChatPart>;

enum class Truth : std::uint8_t { no, yes, unknown };

inline Truth truth_of(bool is) { return is ? Truth::yes : Truth::no; }
inline Truth opposite(Truth t) { return t == Truth::unknown ? t : truth_of(t == Truth::no); }

struct Value {
    enum class Kind : std::uint8_t {
        unknown,
        undefined,
        none,
        boolean,
        number,
        text,
        list,
        generator,  ///< of selectattr: a list that can be gone through once
        message,    ///< `number` says which
        space,      ///< a namespace(); `number` says which
        loop,       ///< a for's `loop`: of `items`, at `number`
        function,   ///< one that the text names
        raised,     ///< raise_exception(text)
    };
    Kind kind = Kind::unknown;
    Truth truth = Truth::unknown;  ///< of what is boolean or unknown
    std::int64_t number = 0;
    ChatText text;
    std::vector<Value> items;

    bool is(Kind k) const { return kind == k; }
    /// True for a number whose sums and products fit. Others are unknown.
    bool is_small() const { return is(Kind::number) && number >= -kMostNumber && number <= kMostNumber; }
    static constexpr std::int64_t kMostNumber = 1'000'000'000;
    /// True for a text of which every character is known.
    bool is_literal() const;
    /// The characters of a literal.
    std::string_view characters() const;
};

Value unknown_value(Truth truth = Truth::unknown);
Value boolean_value(Truth truth);
Value number_value(std::int64_t number);
Value literal_value(std::string_view text);

/// Puts a text behind another.
void append(ChatText& text, const ChatText& more);
/// The text without the space around it, as Python's strip() gives it.
std::string without_space(const std::string& text);
/// A text without the space around it.
Value stripped_value(const Value& text);

Truth truth(const Value& value);
Truth equal(const Value& a, const Value& b);

}  // namespace vkf::text
