// SPDX-License-Identifier: Apache-2.0
#include "text/chat_expression.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace vkf::text {

namespace {

using Kind = Value::Kind;

/// The parts of a text that are put together, where both are texts.
Value text_sum(Value a, const Value& b) {
    if (!a.is(Kind::text) || !b.is(Kind::text)) {
        return unknown_value();
    }
    append(a.text, b.text);
    return a;
}

Value number_result(const Value& a, char sign, const Value& b) {
    if (!a.is_small() || !b.is_small() || (sign == '%' && b.number == 0)) {
        return unknown_value();
    }
    switch (sign) {
        case '+': return number_value(a.number + b.number);
        case '-': return number_value(a.number - b.number);
        case '*': return number_value(a.number * b.number);
        default: {  // Python's rest has the sign of the divisor
            const std::int64_t rest = a.number % b.number;
            return number_value(rest != 0 && (rest < 0) != (b.number < 0) ? rest + b.number : rest);
        }
    }
}

Truth less(const Value& a, const Value& b, bool or_equal) {
    if (!a.is(Kind::number) || !b.is(Kind::number)) {
        return Truth::unknown;
    }
    return truth_of(or_equal ? a.number <= b.number : a.number < b.number);
}

/// Says whether a value is in a list, is a key of a message, or is a part of a text.
Truth is_in(const Value& value, const Value& where) {
    if (where.is(Kind::list)) {
        Truth found = Truth::no;
        for (const Value& item : where.items) {
            const Truth here = equal(value, item);
            if (here == Truth::yes) {
                return here;
            }
            found = here == Truth::unknown ? here : found;
        }
        return found;
    }
    constexpr std::size_t kLongest = 256;  // finding takes the product of both lengths
    if (!value.is_literal() || value.characters().size() > kLongest) {
        return Truth::unknown;
    }
    if (where.is(Kind::message)) {
        return truth_of(value.characters() == "role" || value.characters() == "content");
    }
    return where.is_literal() ? truth_of(where.characters().find(value.characters()) != std::string_view::npos)
                              : Truth::unknown;
}

}  // namespace

Value ChatExpression::value() {
    constexpr int kDeepest = 64;
    if (++depth_ > kDeepest) {
        throw Error("\"" + shown(code_) + "\" is nested deeper than " + std::to_string(kDeepest));
    }
    Value value = either();
    while (skip("if")) {
        const Truth chosen = truth(either());
        Value otherwise;
        otherwise.kind = Kind::undefined;
        if (skip("else")) {
            otherwise = this->value();
        }
        value = chosen == Truth::yes ? std::move(value) : chosen == Truth::no ? std::move(otherwise) : unknown_value();
    }
    --depth_;
    return value;
}

Value ChatExpression::either() {
    Value a = both();
    while (skip("or")) {
        Value b = both();
        const Truth first = truth(a), second = truth(b);
        if (first == Truth::no) {
            a = std::move(b);
        } else if (first == Truth::unknown) {
            a = unknown_value(second == Truth::yes ? second : Truth::unknown);
        }
    }
    return a;
}

Value ChatExpression::both() {
    Value a = negated();
    while (skip("and")) {
        Value b = negated();
        const Truth first = truth(a), second = truth(b);
        if (first == Truth::yes) {
            a = std::move(b);
        } else if (first == Truth::unknown) {
            a = unknown_value(second == Truth::no ? second : Truth::unknown);
        }
    }
    return a;
}

Value ChatExpression::negated() {
    bool turned = false, is_negated = false;
    while (skip("not")) {
        turned = !turned;
        is_negated = true;
    }
    Value value = compared();
    if (!is_negated || value.is(Kind::raised)) {
        return value;
    }
    const Truth is = truth(value);
    return boolean_value(turned ? opposite(is) : is);
}

Value ChatExpression::compared() {
    Value a = sum();
    std::optional<Truth> all;
    while (is("==") || is("!=") || is("<") || is("<=") || is(">") || is(">=") || is("in") || is("not")) {
        const std::string_view sign = token_.text;
        advance();
        if (sign == "not") {
            expect("in");
        }
        Value b = sum();
        if (a.is(Kind::raised) || b.is(Kind::raised)) {
            return a.is(Kind::raised) ? a : b;
        }
        Truth here = Truth::unknown;
        if (sign == "==" || sign == "!=") {
            here = equal(a, b);
        } else if (sign == "in" || sign == "not") {
            here = is_in(a, b);
        } else {
            here = sign[0] == '<' ? less(a, b, sign == "<=") : less(b, a, sign == ">=");
        }
        here = sign == "!=" || sign == "not" ? opposite(here) : here;
        all = !all || *all == Truth::yes || here == Truth::no ? here : *all;  // a < b < c: both
        a = std::move(b);
    }
    return all ? boolean_value(*all) : a;
}

Value ChatExpression::sum() {
    Value a = joined();
    while (is("+") || is("-")) {
        const char sign = token_.text[0];
        advance();
        const Value b = joined();
        a = sign == '+' && a.is(Kind::text) ? text_sum(std::move(a), b) : number_result(a, sign, b);
        names_.spend_on(a);
    }
    return a;
}

Value ChatExpression::joined() {
    Value a = product();
    while (skip("~")) {
        a = text_sum(std::move(a), product());
        names_.spend_on(a);
    }
    return a;
}

Value ChatExpression::product() {
    Value a = signed_value();
    while (is("*") || is("/") || is("//") || is("%")) {
        const std::string_view sign = token_.text;
        advance();
        const Value b = signed_value();
        a = sign == "*" || sign == "%" ? number_result(a, sign[0], b) : unknown_value();
    }
    return a;
}

Value ChatExpression::signed_value() {
    bool turned = false;
    while (is("-") || is("+")) {
        turned = turned != is("-");
        advance();
    }
    Value value = with_filters(with_members(primary()));
    return turned ? number_result(number_value(0), '-', value) : value;
}

Value ChatExpression::primary() {
    const JinjaToken token = token_;
    names_.spend(16);
    if (token.kind == JinjaToken::Kind::string) {
        std::string text;
        for (; token_.kind == JinjaToken::Kind::string; advance()) {  // 'a' 'b' is 'ab'
            text += unescaped(token_.text);
        }
        return literal_value(text);
    }
    if (is("(")) {
        advance();
        Value value = this->value();
        if (is(",")) {
            refuse();
        }
        expect(")");
        return value;
    }
    if (is("[")) {
        return list();
    }
    if (is("{")) {
        skip_brackets();
        return unknown_value();
    }
    advance();
    if (token.kind == JinjaToken::Kind::number) {
        std::int64_t number = 0;
        const char* end = token.text.data() + token.text.size();
        const bool whole = std::from_chars(token.text.data(), end, number).ec == std::errc();
        return whole && number <= Value::kMostNumber ? number_value(number) : unknown_value();
    }
    if (token.kind != JinjaToken::Kind::name) {
        refuse();
    }
    if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
        return boolean_value(truth_of(token.text == "true" || token.text == "True"));
    }
    if (token.text == "none" || token.text == "None") {
        Value none;
        none.kind = Kind::none;
        return none;
    }
    return names_.get(token.text);
}

Value ChatExpression::list() {
    Value list;
    list.kind = Kind::list;
    advance();
    while (!is("]")) {
        Value item = value();
        if (item.is(Kind::list) || item.is(Kind::generator) || item.is(Kind::loop)) {
            item = unknown_value();  // lists of lists of lists would grow without end
        }
        names_.spend_on(item);
        list.items.push_back(std::move(item));
        if (!is("]")) {
            expect(",");
        }
    }
    advance();
    return list;
}

Value ChatExpression::with_members(Value value) {
    while (true) {
        names_.spend_on(value);
        if (skip(".")) {
            if (token_.kind == JinjaToken::Kind::number) {
                advance();
                value = unknown_value();
                continue;
            }
            const std::string_view name = this->name();
            if (is("(")) {
                const Arguments given = arguments();
                const bool plain = given.values.empty() && given.named.empty();
                value = value.is(Kind::text) && name == "strip" && plain ? stripped_value(value) : unknown_value();
            } else {
                value = member(value, name);
            }
        } else if (is("[")) {
            value = item(value);
        } else if (is("(")) {
            value = called(value, arguments());
        } else {
            return value;
        }
    }
}

Value ChatExpression::with_filters(Value value) {
    while (true) {
        names_.spend_on(value);
        if (skip("|")) {
            const std::string_view filter = name();
            value = filtered(value, filter, is("(") ? arguments() : Arguments{});
        } else if (skip("is")) {
            value = tested(value);
        } else if (is("(") || is(".") || is("[")) {  // of what a filter gives
            value = with_members(std::move(value));
        } else {
            return value;
        }
    }
}

ChatExpression::Arguments ChatExpression::arguments() {
    Arguments given;
    expect("(");
    while (!is(")")) {
        const std::size_t at = at_;
        const JinjaToken token = token_;
        if (token.kind == JinjaToken::Kind::name) {
            advance();
        }
        if (token.kind == JinjaToken::Kind::name && skip("=")) {
            given.named.emplace_back(token.text, value());
        } else {
            at_ = at;  // it was no argument's name
            token_ = token;
            given.values.push_back(value());
        }
        if (!is(")")) {
            expect(",");
        }
    }
    advance();
    return given;
}

void ChatExpression::skip_brackets() {
    std::size_t open = 0;
    do {
        open += is("{") || is("[") || is("(") ? 1 : 0;
        open -= is("}") || is("]") || is(")") ? 1 : 0;
        if (at_end()) {
            refuse();
        }
        advance();
    } while (open > 0);
}

std::string_view ChatExpression::name() {
    if (token_.kind != JinjaToken::Kind::name) {
        refuse();
    }
    const std::string_view name = token_.text;
    advance();
    return name;
}

bool ChatExpression::skip(std::string_view word) {
    const bool there = is(word);
    if (there) {
        advance();
    }
    return there;
}

void ChatExpression::expect(std::string_view word) {
    if (!skip(word)) {
        refuse();
    }
}

void ChatExpression::expect_end() {
    if (!at_end()) {
        refuse();
    }
}

void ChatExpression::advance() {
    token_ = next_token(code_, at_);
    names_.spend(token_.text.size() + 1);
}

bool ChatExpression::is(std::string_view word) const {
    return token_.text == word && token_.kind != JinjaToken::Kind::string && token_.kind != JinjaToken::Kind::end;
}

void ChatExpression::refuse() const { throw Error("\"" + shown(code_) + "\" cannot be read"); }

}  // namespace vkf::text
