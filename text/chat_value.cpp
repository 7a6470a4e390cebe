// SPDX-License-Identifier: Apache-2.0
#include "text/chat_value.h"

#include <algorithm>

#include "text/unicode.h"

namespace vkf::text {

namespace {

using Kind = Value::Kind;

bool is_of(const ChatPart& part, ChatPart::Kind kind) { return part.kind == kind; }

/// True where a text is there whatever the messages say.
Truth is_written(const ChatText& text) {
    const auto strips = [](const ChatPart& p) { return is_of(p, ChatPart::Kind::strip); };
    const bool whole = std::none_of(text.begin(), text.end(), strips);
    for (const ChatPart& p : text) {
        const bool literal = is_of(p, ChatPart::Kind::literal);
        if (is_of(p, ChatPart::Kind::day) || (whole && (literal || is_of(p, ChatPart::Kind::system))) ||
            (literal && !without_space(p.text).empty())) {
            return Truth::yes;
        }
    }
    return text.empty() ? Truth::no : Truth::unknown;
}

}  // namespace

bool Value::is_literal() const {
    return is(Kind::text) && (text.empty() || (text.size() == 1 && is_of(text[0], ChatPart::Kind::literal)));
}

std::string_view Value::characters() const { return text.empty() ? std::string_view() : text[0].text; }

Value unknown_value(Truth truth) {
    Value value;
    value.truth = truth;
    return value;
}

Value boolean_value(Truth truth) {
    Value value;
    value.kind = Kind::boolean;
    value.truth = truth;
    return value;
}

Value number_value(std::int64_t number) {
    Value value;
    value.kind = Kind::number;
    value.number = number;
    return value;
}

Value literal_value(std::string_view text) {
    Value value;
    value.kind = Kind::text;
    if (!text.empty()) {
        value.text.push_back({ChatPart::Kind::literal, std::string(text)});
    }
    return value;
}

void append(ChatText& text, const ChatText& more) {
    for (const ChatPart& p : more) {
        if (is_of(p, ChatPart::Kind::literal) && !text.empty() && is_of(text.back(), ChatPart::Kind::literal)) {
            text.back().text += p.text;
        } else {
            text.push_back(p);
        }
    }
}

std::string without_space(const std::string& text) {
    std::size_t begin = text.size(), end = 0, at = 0;
    for_each_character(text, [&](std::string_view character, char32_t c) {
        const bool separator = c >= 0x1c && c <= 0x1f;  // space to Python, not to Unicode
        if (!is_space(c) && !separator) {
            begin = std::min(begin, at);
            end = at + character.size();
        }
        at += character.size();
    });
    return end == 0 ? std::string() : text.substr(begin, end - begin);
}

Value stripped_value(const Value& text) {
    if (text.is_literal()) {
        return literal_value(without_space(std::string(text.characters())));
    }
    Value value;
    value.kind = Kind::text;
    value.text.push_back({ChatPart::Kind::strip, {}});
    append(value.text, text.text);
    value.text.push_back({ChatPart::Kind::strip_end, {}});
    return value;
}

Truth truth(const Value& value) {
    switch (value.kind) {
        case Kind::unknown:
        case Kind::boolean: return value.truth;
        case Kind::undefined:
        case Kind::none: return Truth::no;
        case Kind::number: return truth_of(value.number != 0);
        case Kind::text: return is_written(value.text);
        case Kind::list: return truth_of(!value.items.empty());
        case Kind::raised: return Truth::unknown;
        case Kind::generator:
        case Kind::message:
        case Kind::space:
        case Kind::loop:
        case Kind::function: break;
    }
    return Truth::yes;
}

Truth equal(const Value& a, const Value& b) {
    const auto counts = [](const Value& v) { return v.is(Kind::number) || v.is(Kind::boolean); };
    for (const Value* v : {&a, &b}) {
        if (v->is(Kind::unknown) || v->is(Kind::raised)) {
            return Truth::unknown;
        }
    }
    if (a.kind != b.kind) {
        return counts(a) && counts(b) ? Truth::unknown : Truth::no;
    }
    switch (a.kind) {
        case Kind::undefined:
        case Kind::none: return Truth::yes;
        case Kind::number:
        case Kind::message: return truth_of(a.number == b.number);
        case Kind::boolean:
            return a.truth == Truth::unknown || b.truth == Truth::unknown ? Truth::unknown
                                                                          : truth_of(a.truth == b.truth);
        case Kind::text:
            return a.is_literal() && b.is_literal() ? truth_of(a.characters() == b.characters()) : Truth::unknown;
        default: return Truth::unknown;
    }
}

}  // namespace vkf::text
