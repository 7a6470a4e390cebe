// SPDX-License-Identifier: Apache-2.0
// Members, filters, tests and functions of a chat template's values.
#include <algorithm>
#include <optional>

#include "text/chat_expression.h"

namespace vkf::text {

namespace {

using Kind = Value::Kind;

/// The part of a list that [first:last:step] is, where it is one of the common ones.
Value slice(const Value& list, const std::optional<Value>& first, const std::optional<Value>& last,
            const std::optional<Value>& step) {
    const auto size = static_cast<std::int64_t>(list.items.size());
    const auto bound = [&](const std::optional<Value>& v, std::int64_t otherwise) {
        const std::int64_t at = v ? v->number : otherwise;
        return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
    };
    for (const auto* v : {&first, &last, &step}) {
        if (*v && !(*v)->is_small()) {
            return unknown_value();
        }
    }
    Value part;
    part.kind = Kind::list;
    if (!step || step->number == 1) {
        for (std::int64_t i = bound(first, 0); i < bound(last, size); ++i) {
            part.items.push_back(list.items[static_cast<std::size_t>(i)]);
        }
    } else if (step->number == -1 && !first && !last) {
        part.items.assign(list.items.rbegin(), list.items.rend());
    } else {
        return unknown_value();
    }
    return part;
}

}  // namespace

Value ChatExpression::filtered(const Value& value, std::string_view filter, const Arguments& given) {
    const bool plain = given.values.empty() && given.named.empty();
    if (filter == "trim" && plain && value.is(Kind::text)) {
        return stripped_value(value);
    }
    if (filter == "list" && value.is(Kind::generator) && plain) {
        Value list = value;
        list.kind = Kind::list;
        return list;
    }
    if (((filter == "string" && value.is(Kind::text)) || (filter == "list" && value.is(Kind::list))) && plain) {
        return value;
    }
    if ((filter == "length" || filter == "count") && value.is(Kind::list)) {
        return number_value(static_cast<std::int64_t>(value.items.size()));
    }
    if ((filter == "selectattr" || filter == "rejectattr") && (value.is(Kind::list) || value.is(Kind::generator)) &&
        given.named.empty()) {
        return selected(value, filter == "selectattr", given.values);
    }
    if ((filter == "default" || filter == "d") && given.values.size() == 1 && given.named.empty() &&
        !value.is(Kind::unknown)) {
        return value.is(Kind::undefined) ? given.values[0] : value;
    }
    return unknown_value();
}

/// The messages of a list of which a member is equal to a value, or is there; or the others.
Value ChatExpression::selected(const Value& list, bool wanted, const std::vector<Value>& given) {
    if (given.size() < 2 || !given[0].is_literal() || !given[1].is_literal()) {
        return unknown_value();
    }
    const std::string_view test = given[1].characters();
    const bool compares = test == "equalto" || test == "eq" || test == "==";
    if (given.size() != (compares ? 3 : 2) || (!compares && test != "defined" && test != "undefined")) {
        return unknown_value();
    }
    Value part;
    part.kind = Kind::generator;
    for (const Value& item : list.items) {
        const Value of = item.is(Kind::message) ? member(item, given[0].characters()) : unknown_value();
        const Truth is = compares               ? equal(of, given[2])
                         : of.is(Kind::unknown) ? Truth::unknown
                                                : truth_of(of.is(Kind::undefined) == (test == "undefined"));
        if (is == Truth::unknown) {
            return unknown_value();
        }
        if (is == truth_of(wanted)) {
            part.items.push_back(item);
        }
    }
    return part;
}

Value ChatExpression::tested(const Value& value) {
    const bool turned = skip("not");
    const std::string_view test = name();
    Truth is = Truth::unknown;
    if (test == "defined" || test == "undefined") {
        is = truth_of(value.is(Kind::undefined) == (test == "undefined"));
        is = value.is(Kind::unknown) ? Truth::unknown : is;
    } else if (value.is(Kind::unknown) || value.is(Kind::raised)) {
        is = Truth::unknown;
    } else if (test == "none") {
        is = truth_of(value.is(Kind::none));
    } else if (test == "string") {
        is = truth_of(value.is(Kind::text));
    } else if (test == "mapping") {
        is = truth_of(value.is(Kind::message));
    } else if (test == "iterable" || test == "sequence") {
        is = value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::message)     ? Truth::yes
             : value.is(Kind::none) || value.is(Kind::boolean) || value.is(Kind::number) ? Truth::no
                                                                                         : Truth::unknown;
    } else if (test == "true" || test == "false") {
        is = !value.is(Kind::boolean) ? Truth::no : test == "true" ? value.truth : opposite(value.truth);
    } else if (test == "boolean") {
        is = truth_of(value.is(Kind::boolean));
    } else if (test == "number" && !value.is(Kind::boolean)) {  // Python takes a boolean for one
        is = truth_of(value.is(Kind::number));
    }
    is = skip_test_argument() ? Truth::unknown : is;
    return boolean_value(turned ? opposite(is) : is);
}

/// Steps over the argument of a test, which may stand without brackets: "x is divisibleby 3".
bool ChatExpression::skip_test_argument() {
    using Token = JinjaToken::Kind;
    static constexpr std::string_view kWords[] = {"and", "or", "not", "if", "else", "in", "is"};
    const bool word = std::find(std::begin(kWords), std::end(kWords), token_.text) != std::end(kWords);
    const bool name = token_.kind == Token::name && !word;
    const bool there = name || token_.kind == Token::string || token_.kind == Token::number;
    if (!there && !is("(") && !is("[") && !is("{")) {
        return false;
    }
    is("(") ? void(arguments()) : void(with_members(primary()));
    return true;
}

Value ChatExpression::member(const Value& value, std::string_view name) {
    const auto last = static_cast<std::int64_t>(value.items.size()) - 1;
    switch (value.kind) {
        case Kind::message:
            if (name == "role") {
                return literal_value(names_.role(value));
            }
            if (name == "content") {
                return names_.content(value);
            }
            if (name == "items" || name == "keys" || name == "values" || name == "get" || name == "pop" ||
                name == "copy" || name == "update" || name == "clear" || name == "setdefault" || name == "popitem" ||
                name == "fromkeys" || name.starts_with("__")) {
                return unknown_value();
            }
            break;
        case Kind::space: return names_.get_of_space(value, name);
        case Kind::loop:
            if (name == "first" || name == "last") {
                return boolean_value(truth_of(value.number == (name == "first" ? 0 : last)));
            }
            if (name == "index" || name == "index0") {
                return number_value(value.number + (name == "index" ? 1 : 0));
            }
            if (name == "revindex" || name == "revindex0") {
                return number_value(last - value.number + (name == "revindex" ? 1 : 0));
            }
            return name == "length" ? number_value(last + 1) : unknown_value();
        default: return unknown_value();
    }
    Value undefined;
    undefined.kind = Kind::undefined;
    return undefined;
}

Value ChatExpression::item(const Value& value) {
    advance();
    std::optional<Value> bounds[3];
    std::size_t colons = 0;
    while (!is("]")) {
        if (skip(":")) {
            if (++colons > 2) {
                refuse();
            }
        } else if (bounds[colons]) {
            refuse();
        } else {
            bounds[colons] = this->value();
        }
    }
    advance();
    if (colons > 0) {
        return value.is(Kind::list) ? slice(value, bounds[0], bounds[1], bounds[2]) : unknown_value();
    }
    if (!bounds[0]) {
        refuse();
    }
    const Value& key = *bounds[0];
    if (value.is(Kind::list) && key.is_small()) {
        const auto size = static_cast<std::int64_t>(value.items.size());
        const std::int64_t at = key.number < 0 ? key.number + size : key.number;
        if (at >= 0 && at < size) {
            return value.items[static_cast<std::size_t>(at)];
        }
        Value undefined;
        undefined.kind = Kind::undefined;
        return undefined;
    }
    return key.is_literal() && (value.is(Kind::message) || value.is(Kind::space)) ? member(value, key.characters())
                                                                                  : unknown_value();
}

Value ChatExpression::called(const Value& function, const Arguments& given) {
    if (!function.is(Kind::function)) {
        return unknown_value();
    }
    const std::string_view name = function.text[0].text;
    const bool one_text = given.values.size() == 1 && given.named.empty() && given.values[0].is_literal();
    if (name == "raise_exception") {
        Value raised = one_text ? given.values[0] : unknown_value();
        raised.kind = Kind::raised;
        return raised;
    }
    if (name == "namespace" && given.values.empty()) {
        const Value space = names_.make_space();
        for (const auto& [member, value] : given.named) {
            names_.set_in_space(space, member, value);
        }
        return space;
    }
    if (name == "strftime_now" && one_text && given.values[0].characters() == "%d %b %Y") {
        Value day;
        day.kind = Kind::text;
        day.text.push_back({ChatPart::Kind::day, {}});
        return day;
    }
    return unknown_value();
}

}  // namespace vkf::text
