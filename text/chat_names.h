// SPDX-License-Identifier: Apache-2.0
// The names that a chat template uses: those that transformers gives it, and its own.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_value.h"

namespace vkf::text {

/// A user's message is there, behind a system message where `system` is set; no tools, and nothing
/// that an application adds.
class ChatNames {
public:
    ChatNames(const std::string& bos, bool system);

    /// The value of a name; undefined where there is none.
    Value get(std::string_view name);
    /// Sets it in the innermost loop.
    void set(std::string_view name, Value value);
    void enter_loop() { scopes_.emplace_back(); }
    void leave_loop() { scopes_.pop_back(); }

    Value make_space();
    Value get_of_space(const Value& space, std::string_view name);
    void set_in_space(const Value& space, std::string_view name, Value value);

    std::string_view role(const Value& message) const { return has_system_ && message.number == 0 ? "system" : "user"; }
    Value content(const Value& message) const;

    /// Counts what a template does, in bytes. Throws Error where it does more than templates do: no
    /// file takes time or memory without end.
    void spend(std::size_t bytes);
    void spend_on(const Value& value);

private:
    using Scope = std::map<std::string, Value, std::less<>>;

    bool has_system_;
    std::vector<Scope> scopes_;
    std::vector<Scope> spaces_;
    std::size_t spent_ = 0;
};

}  // namespace vkf::text
