// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"
#include "runtime/base/paths.h"
#include "text/chat_follow.h"
#include "text/jinja.h"
#include "text/json.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace vkf {

using namespace text;

/// What the template writes for a question alone, and behind a system message.
struct ChatTemplate::Texts {
    ChatText alone;
    std::optional<ChatText> with_system;
};

namespace {

constexpr std::size_t kMostTemplateBytes = std::size_t{1} << 20;

struct Family {
    const char* name;
    const char* mark;    ///< no other family has it
    const char* before;  ///< what stands before the question
    const char* after;   ///< what is written behind it
};
constexpr Family kFamilies[] = {
    {"ChatML", "<|im_start|>", "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"},
    {"Llama 3", "<|start_header_id|>", "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"Mistral", "[INST]", "[INST]", "[/INST]"},
    {"Gemma", "<start_of_turn>", "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n"},
};

bool has(const std::vector<JinjaPiece>& pieces, std::string_view part) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [&](const JinjaPiece& p) { return p.code.find(part) != std::string_view::npos; });
}

[[noreturn]] void refuse_template(const std::string& why, const std::string& name) {
    throw Error("the chat template is not supported: " + why + "; give the whole prompt as the model wants it", name);
}

/// The day as "26 Jul 2024", whatever the program's locale is.
std::string today() {
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
#ifdef _WIN32
    localtime_s(&parts, &now);
#else
    localtime_r(&now, &parts);
#endif
    const char* month = kMonths[std::clamp(parts.tm_mon, 0, 11)];
    return (parts.tm_mday < 10 ? "0" : "") + std::to_string(parts.tm_mday) + " " + month + " " +
           std::to_string(1900 + parts.tm_year);
}

const Family& family_of(const std::vector<JinjaPiece>& pieces, const std::string& name) {
    const Family* found = nullptr;
    for (const Family& f : kFamilies) {
        if (has(pieces, f.mark)) {
            if (found != nullptr) {
                refuse_template(std::string("it has both \"") + found->mark + "\" and \"" + f.mark + "\"", name);
            }
            found = &f;
        }
    }
    if (found == nullptr) {
        refuse_template("it is none of ChatML, Llama 2, Llama 3, Mistral and Gemma", name);
    }
    if (has(pieces, "image")) {
        refuse_template("it is for images too", name);
    }
    return *found;
}

std::ptrdiff_t count(const ChatText& text, ChatPart::Kind kind) {
    return std::count_if(text.begin(), text.end(), [&](const ChatPart& p) { return p.kind == kind; });
}

/// Throws where a question does not stand between its family's marks.
void require_marks(const ChatText& text, const Family& family, const std::string& bos, const std::string& name) {
    using Kind = ChatPart::Kind;
    if (count(text, Kind::user) != 1) {
        refuse_template("it writes the question " + std::to_string(count(text, Kind::user)) + " times", name);
    }
    std::string before, after;
    bool behind = false;
    for (const ChatPart& p : text) {
        behind = behind || p.kind == Kind::user;
        (behind ? after : before) += p.text;
    }
    const std::string mark = family.mark;
    const bool chatml = mark == "<|im_start|>";  // of others a system message may stand in between
    after = mark == "[INST]" ? stripped(after, true, true) : after;
    if (chatml ? !before.ends_with(family.before) : before.find(family.before) == std::string::npos) {
        refuse_template(std::string(family.name) + " without \"" + mark + "\" of the user before the question", name);
    }
    if (after != family.after) {
        refuse_template(std::string(family.name) + " with \"" + shown(after) + "\" behind the question", name);
    }
    if (!chatml) {
        return;
    }
    if (count(text, Kind::strip) != 0) {
        refuse_template("ChatML that strips messages", name);
    }
    before.resize(before.size() - std::string_view(family.before).size());
    before.erase(0, before.starts_with(bos) ? bos.size() : 0);
    if (!before.empty() && !(before.starts_with("<|im_start|>system\n") && before.ends_with("<|im_end|>\n"))) {
        refuse_template("ChatML with \"" + shown(before) + "\" before the question", name);
    }
}

/// What the template writes behind a system message; nothing where it takes none.
std::optional<ChatText> behind_system(const std::vector<JinjaPiece>& pieces, const Family& family,
                                      const std::string& bos, const std::string& name) {
    ChatWritten written = follow_template(pieces, bos, true);
    if (count(written.text, ChatPart::Kind::system) != 1 || count(written.text, ChatPart::Kind::user) != 1) {
        return std::nullopt;
    }
    require_marks(written.text, family, bos, name);
    return std::move(written.text);
}

/// The text with what its parts stand for.
std::string filled(const ChatText& parts, std::string_view user, std::string_view system) {
    std::string text;
    std::vector<std::size_t> strips;  // where those begin that have not ended
    for (const ChatPart& p : parts) {
        switch (p.kind) {
            case ChatPart::Kind::literal: text += p.text; break;
            case ChatPart::Kind::user: text += user; break;
            case ChatPart::Kind::system: text += system; break;
            case ChatPart::Kind::day: text += today(); break;
            case ChatPart::Kind::strip: strips.push_back(text.size()); break;
            case ChatPart::Kind::strip_end: {
                const std::string inner = without_space(text.substr(strips.back()));
                text.replace(strips.back(), std::string::npos, inner);
                strips.pop_back();
                break;
            }
        }
    }
    return text;
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view jinja, const std::string& bos, const std::string& name) {
    if (jinja.size() > kMostTemplateBytes) {
        throw Error("has " + std::to_string(jinja.size()) + " bytes, of which at most " +
                        std::to_string(kMostTemplateBytes) + " are read",
                    name);
    }
    if (malformed_at(jinja) != std::string_view::npos) {
        throw Error("it is not UTF-8", name);
    }
    ChatTemplate t;
    t.name_ = name;
    const std::string lines = jinja_lines(jinja);
    try {
        const std::vector<JinjaPiece> pieces = cut_jinja(lines);
        const Family& family = family_of(pieces, name);
        t.family_ = has(pieces, "<<SYS>>") ? "Llama 2" : family.name;
        ChatWritten alone = follow_template(pieces, bos, false);
        if (alone.raised) {
            refuse_template("it refuses a question: " + *alone.raised, name);
        }
        require_marks(alone.text, family, bos, name);
        t.texts_ =
            std::make_shared<const Texts>(Texts{std::move(alone.text), behind_system(pieces, family, bos, name)});
    } catch (const Error& error) {
        if (!error.where().empty()) {
            throw;
        }
        refuse_template(error.what(), name);
    }
    return t;
}

ChatTemplate::ChatTemplate(const std::filesystem::path& folder) {
    const std::filesystem::path jinja = folder / "chat_template.jinja";
    const std::filesystem::path config = folder / "tokenizer_config.json";
    OwnedJson root;
    if (is_there(config)) {
        root = read_object(config);
    }
    const bool own_file = is_there(jinja);
    const Json& written = part_of(root, "chat_template");
    if (!own_file && !written.is_string()) {
        throw Error(std::string("it has no chat template") + (written.is_array() ? " but several with names" : ""),
                    utf8_name(config));
    }
    const std::string text = own_file ? file_text(jinja, kMostTemplateBytes) : written.get<std::string>();
    const Json& token = part_of(root, "bos_token");
    const Json& bos = token.is_object() && token.contains("content") ? token["content"] : token;
    *this = parse(text, bos.is_string() ? bos.get<std::string>() : "", utf8_name(own_file ? jinja : config));
}

std::string ChatTemplate::prompt(std::string_view user, std::string_view system) const {
    if (!system.empty() && !texts_->with_system) {
        throw Error("the chat template (" + family_ + ") takes no system message", name_);
    }
    return filled(system.empty() ? texts_->alone : *texts_->with_system, user, system);
}

}  // namespace vkf
