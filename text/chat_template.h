// SPDX-License-Identifier: Apache-2.0
// Puts a question as a chat model was trained to see it, by the common templates, which are
// recognised in the text that comes with a checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "../runtime/base/export.h"

namespace vkf {

/// ChatML (Qwen 1.5 to 3 and others), Llama 2, 3 and 3.1 and on, Mistral and Gemma, for one
/// question of a user and a system message. Templates are programs in Jinja. This class does not
/// interpret them: it recognises these families by their marks and refuses all others.
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
    ChatTemplate() = default;
    void read_chatml(const std::string& jinja);
    void read_llama3(const std::string& jinja);
    void read_inst(const std::string& jinja);
    void read_gemma(const std::string& jinja);

    enum class System { none, before, inside };  ///< inside: with the question, as one text

    std::string family_, name_;
    std::string begin_, system_begin_, system_end_, default_system_, user_begin_, answer_begin_;
    System system_ = System::none;
    bool system_always_ = false;  ///< its frame is there without a message too
    bool trim_ = false;           ///< messages lose the space around them
};

}  // namespace vkf
