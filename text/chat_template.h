// SPDX-License-Identifier: Apache-2.0
// Puts a question as a chat model was trained to see it, by the common templates, which are
// recognised in the text that comes with a checkpoint.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "../runtime/base/export.h"

namespace vkf {

/// ChatML (Qwen 1.5 to 3 and others), Llama 2, 3 and 3.1 and on, Mistral and Gemma, for one
/// question of a user and a system message. Templates are programs in Jinja. This class recognises
/// these families by their marks, follows what the template writes for a question, and refuses
/// templates of others, and those that take more of Jinja than it follows.
class VKF_API ChatTemplate {
public:
    /// Reads a folder's chat_template.jinja, or "chat_template" of its tokenizer_config.json.
    /// Throws Error naming the file where there is no template, or where it is none of these.
    explicit ChatTemplate(const std::filesystem::path& folder);
    /// Parses text that is in memory; `bos` is the token that begins texts, `name` stands
    /// for the file in errors.
    static ChatTemplate parse(std::string_view jinja, const std::string& bos, const std::string& name);

    /// The text that a model continues with its answer. It includes the special tokens, so encode
    /// it without further ones. `system` is the system message; where it is empty, the template's
    /// own is used, if it has one. Throws Error where a system message is given and the template
    /// takes none.
    std::string prompt(std::string_view user, std::string_view system = {}) const;
    /// The name of the family: "ChatML", "Llama 3", ...
    const std::string& family() const noexcept { return family_; }

private:
    struct Texts;
    ChatTemplate() = default;

    std::string family_, name_;
    std::shared_ptr<const Texts> texts_;
};

}  // namespace vkf
