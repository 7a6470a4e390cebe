// SPDX-License-Identifier: Apache-2.0
#include "text/chat_names.h"

#include <utility>

#include "runtime/base/error.h"

namespace vkf::text {

namespace {

using Kind = Value::Kind;

Value of_kind(Kind kind, std::int64_t number = 0) {
    Value value;
    value.kind = kind;
    value.number = number;
    return value;
}

Value function_value(std::string_view name) {
    Value value = literal_value(name);
    value.kind = Kind::function;
    return value;
}

/// What a name may keep: of what changes while it is kept nothing is known but that it is there.
Value lasting(Value value) {
    const bool changes = value.is(Kind::generator) || value.is(Kind::loop);
    return changes ? unknown_value(Truth::yes) : std::move(value);
}

}  // namespace

ChatNames::ChatNames(const std::string& bos, bool system) : has_system_(system), scopes_(1) {
    Scope& names = scopes_.front();
    Value messages = of_kind(Kind::list);
    for (std::int64_t i = 0; i < (system ? 2 : 1); ++i) {
        messages.items.push_back(of_kind(Kind::message, i));
    }
    names["messages"] = std::move(messages);
    names["add_generation_prompt"] = boolean_value(Truth::yes);
    names["tools"] = names["documents"] = of_kind(Kind::none);
    if (!bos.empty()) {  // where a tokenizer has none, transformers gives no such name
        names["bos_token"] = literal_value(bos);
    }
    for (const char* token : {"eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
        names[token] = unknown_value();
    }
    for (const char* name : {"raise_exception", "strftime_now", "namespace"}) {
        names[name] = function_value(name);
    }
    for (const char* name : {"range", "dict", "lipsum", "cycler", "joiner"}) {
        names[name] = unknown_value(Truth::yes);
    }
}

Value ChatNames::get(std::string_view name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
        if (const auto found = scope->find(name); found != scope->end()) {
            spend_on(found->second);
            return found->second;
        }
    }
    return of_kind(Kind::undefined);
}

void ChatNames::set(std::string_view name, Value value) {
    spend_on(value);
    value = name == "loop" ? std::move(value) : lasting(std::move(value));
    scopes_.back().insert_or_assign(std::string(name), std::move(value));
}

Value ChatNames::make_space() {
    spaces_.emplace_back();
    return of_kind(Kind::space, static_cast<std::int64_t>(spaces_.size() - 1));
}

Value ChatNames::get_of_space(const Value& space, std::string_view name) {
    const Scope& members = spaces_[static_cast<std::size_t>(space.number)];
    const auto found = members.find(name);
    if (found == members.end()) {
        return of_kind(Kind::undefined);
    }
    spend_on(found->second);
    return found->second;
}

void ChatNames::set_in_space(const Value& space, std::string_view name, Value value) {
    spend_on(value);
    value = lasting(std::move(value));
    spaces_[static_cast<std::size_t>(space.number)].insert_or_assign(std::string(name), std::move(value));
}

Value ChatNames::content(const Value& message) const {
    Value value = of_kind(Kind::text);
    value.text.push_back({role(message) == "system" ? ChatPart::Kind::system : ChatPart::Kind::user, {}});
    return value;
}

void ChatNames::spend(std::size_t bytes) {
    constexpr std::size_t kMost = std::size_t{16} << 20;
    spent_ += bytes;
    if (spent_ > kMost) {
        throw Error("it does more than chat templates do");
    }
}

void ChatNames::spend_on(const Value& value) {
    std::size_t bytes = 64 + value.text.size() * sizeof(ChatPart) + value.items.size() * sizeof(Value);
    for (const ChatPart& p : value.text) {
        bytes += p.text.size();
    }
    spend(bytes);
}

}  // namespace vkf::text
