// SPDX-License-Identifier: Apache-2.0
// Expressions of chat templates: texts and their sums, messages, comparisons, tests and filters.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_names.h"
#include "text/jinja.h"

namespace vkf::text {

/// Reads the code of a tag from its front to its end, and gives the values of what it reads. A
/// value is unknown where it depends on what the messages say, or on more of Jinja than is known
/// here.
class ChatExpression {
public:
    ChatExpression(std::string_view code, ChatNames& names) : code_(code), names_(names) { advance(); }

    Value value();
    /// The same where an "if" behind it is not its own: what a for goes through.
    Value value_before_if() { return either(); }
    /// The name that stands next. Throws Error where there is none.
    std::string_view name();
    /// Steps over what stands next, where it is this name or sign.
    bool skip(std::string_view word);
    void expect(std::string_view word);
    bool at_end() const { return token_.kind == JinjaToken::Kind::end; }
    void expect_end();

private:
    struct Arguments {
        std::vector<Value> values;
        std::vector<std::pair<std::string_view, Value>> named;
    };

    Value either();
    Value both();
    Value negated();
    Value compared();
    Value sum();
    Value joined();
    Value product();
    Value signed_value();
    Value primary();
    Value list();
    Value with_members(Value value);
    Value with_filters(Value value);
    Value filtered(const Value& value, std::string_view filter, const Arguments& given);
    Value selected(const Value& list, bool wanted, const std::vector<Value>& given);
    Value tested(const Value& value);
    bool skip_test_argument();
    Value member(const Value& value, std::string_view name);
    Value item(const Value& value);
    Value called(const Value& function, const Arguments& given);
    Arguments arguments();
    void skip_brackets();

    void advance();
    bool is(std::string_view word) const;
    [[noreturn]] void refuse() const;

    std::string_view code_;
    ChatNames& names_;
    std::size_t at_ = 0;
    JinjaToken token_;
    int depth_ = 0;
};

}  // namespace vkf::text
