// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"
#include "runtime/base/paths.h"
#include "text/json.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace vkf {

using namespace text;

namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string replaced(const std::string& text, const std::string& wanted, const std::string& by) {
    return replace_all(text, text_finder(wanted), by);
}

constexpr std::size_t kMostTemplateBytes = std::size_t{1} << 20;

/// One literal is looked for: more need not be told apart.
constexpr std::size_t kMostLiterals = 8;

/// The literals of the template that follow `mark` up to `end`: not those where the mark ends a
/// string, and code follows.
std::set<std::string> literals_between(const std::string& jinja, const std::string& mark, const std::string& end) {
    std::set<std::string> found;
    std::size_t stop = 0, code = 0;  // the first behind the mark, which many marks may share
    for (std::size_t at = jinja.find(mark); at != std::string::npos && found.size() < kMostLiterals;
         at = jinja.find(mark, at + 1)) {
        const std::size_t begin = at + mark.size();
        stop = stop < begin ? jinja.find(end, begin) : stop;
        code = code < begin ? jinja.find_first_of("'\"{}<", begin) : code;
        if (stop == std::string::npos) {
            break;
        }
        if (code >= stop) {
            found.insert(jinja.substr(begin, stop - begin));
        }
    }
    return found;
}

/// The string literals in which the mark is, without their quotes.
std::set<std::string> literals_with(const std::string& jinja, const std::string& mark) {
    std::set<std::string> found;
    std::size_t end = 0;  // of the literal that was found last: the next one begins there
    for (std::size_t at = jinja.find(mark); at != std::string::npos && found.size() < kMostLiterals;
         at = jinja.find(mark, std::max(at + 1, end))) {
        const std::string_view before = std::string_view(jinja).substr(end, at - end);
        const std::size_t begin = before.find_last_of("'\"");
        end = at;
        if (begin != std::string::npos) {
            const char quote = before[begin];
            end = std::min(jinja.find(quote, at), jinja.size());
            const std::size_t first = at - (before.size() - begin) + 1;
            found.insert(jinja.substr(first, end - first));
        }
    }
    return found;
}

/// True where a single line break follows each mark, its role or whatever code is between.
bool one_line_break_after(const std::string& jinja, std::string_view mark) {
    std::size_t line = 0;  // the first break behind the mark, which many marks may share
    for (std::size_t at = jinja.find(mark); at != std::string::npos; at = jinja.find(mark, at + 1)) {
        line = line < at ? jinja.find('\n', at) : line;
        if (line == std::string::npos || jinja.compare(line, 2, "\n\n") == 0) {
            return false;
        }
    }
    return true;
}

/// True where a line break follows each mark at once: in its literal, in the next that is added to
/// it, or in the template's own text.
bool line_break_at(const std::string& jinja, std::string_view mark) {
    for (std::size_t at = jinja.find(mark); at != std::string::npos; at = jinja.find(mark, at + 1)) {
        std::size_t end = at + mark.size();
        if (end < jinja.size() && (jinja[end] == '\'' || jinja[end] == '"')) {
            const char quote = jinja[end];
            end = std::min(jinja.find_first_not_of(' ', end + 1), jinja.size());
            if (end == jinja.size() || jinja[end] != '+') {
                return false;
            }
            end = std::min(jinja.find_first_not_of(' ', end + 1), jinja.size());
            if (end == jinja.size() || jinja[end++] != quote) {
                return false;
            }
        }
        if (end == jinja.size() || jinja[end] != '\n') {
            return false;
        }
    }
    return true;
}

/// True where the template writes the word once, by itself, under no condition and in no loop.
bool written_always(const std::string& jinja, const std::string& word) {
    const std::size_t at = jinja.find(word);
    if (jinja.find(word, at + 1) != std::string::npos) {
        return false;
    }
    const std::size_t before = jinja.find_last_not_of(" -", at - 1);
    const std::size_t after = jinja.find_first_not_of(" -", at + word.size());
    if (at == 0 || before == std::string::npos || before == 0 || jinja.compare(before - 1, 2, "{{") != 0 ||
        after == std::string::npos || jinja.compare(after, 2, "}}") != 0) {
        return false;
    }
    int open = 0;
    for (std::size_t tag = jinja.find("{%"); tag < at; tag = jinja.find("{%", tag + 2)) {
        const std::size_t name = jinja.find_first_not_of(" -", tag + 2);
        const auto is = [&](std::string_view wanted) { return jinja.compare(name, wanted.size(), wanted) == 0; };
        open += is("if") || is("for") || is("macro") ? 1 : is("end") ? -1 : 0;
    }
    return open == 0;
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

}  // namespace

void ChatTemplate::read_chatml(const std::string& jinja) {
    family_ = "ChatML";
    for (const char* mark : {"<|im_sep|>", "system_message", "capitalize", "<|im_start|>assistant\n<think>", "trim"}) {
        if (has(jinja, mark)) {
            refuse_template(std::string("ChatML with \"") + mark + "\"", name_);
        }
    }
    if (has(jinja, ".strip()")) {
        refuse_template("ChatML that strips messages", name_);
    }
    if (!one_line_break_after(jinja, "<|im_start|>") || !line_break_at(jinja, "<|im_end|>")) {
        refuse_template("ChatML with other line breaks", name_);
    }
    if (!has(jinja, "add_generation_prompt") || !has(jinja, "<|im_start|>assistant\n")) {
        refuse_template("ChatML that begins no answer", name_);
    }
    if (has(jinja, "bos_token") && !written_always(jinja, "bos_token")) {
        refuse_template("ChatML that writes bos_token under a condition", name_);
    }
    const std::set<std::string> defaults = literals_between(jinja, "<|im_start|>system\n", "<|im_end|>\n");
    if (defaults.size() > 1) {
        refuse_template("ChatML with " + std::to_string(defaults.size()) + " system messages of its own", name_);
    }
    default_system_ = defaults.empty() ? "" : *defaults.begin();
    system_ = System::before;
    system_begin_ = "<|im_start|>system\n";
    system_end_ = "<|im_end|>\n";
    user_begin_ = "<|im_start|>user\n";
    answer_begin_ = "<|im_end|>\n<|im_start|>assistant\n";
}

void ChatTemplate::read_llama3(const std::string& jinja) {
    family_ = "Llama 3";
    if (!has(jinja, "<|eot_id|>") || !has(jinja, "trim") || !has(jinja, "bos_token")) {
        refuse_template("Llama 3's marks without \"<|eot_id|>\", \"trim\" or \"bos_token\"", name_);
    }
    trim_ = true;
    system_ = System::before;
    system_begin_ = "<|start_header_id|>system<|end_header_id|>\n\n";
    system_end_ = "<|eot_id|>";
    if (has(jinja, "Cutting Knowledge Date: ")) {  // 3.1 and later
        const std::set<std::string> known = literals_between(jinja, "Cutting Knowledge Date: ", "\n");
        const std::set<std::string> dates = literals_between(jinja, "set date_string = \"", "\"");
        if (known.size() != 1 || dates.size() != 1) {
            refuse_template("Llama 3's without one date of its knowledge and one of the day", name_);
        }
        system_always_ = true;
        system_begin_ += "Cutting Knowledge Date: " + *known.begin() +
                         "\nToday Date: " + (has(jinja, "strftime_now(\"%d %b %Y\")") ? today() : *dates.begin()) +
                         "\n\n";
    }
    user_begin_ = "<|start_header_id|>user<|end_header_id|>\n\n";
    answer_begin_ = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
}

void ChatTemplate::read_inst(const std::string& jinja) {
    const bool llama2 = has(jinja, "<<SYS>>");
    family_ = llama2 ? "Llama 2" : "Mistral";
    for (const char* mark : {"[SYSTEM_PROMPT]", "[TOOL_CALLS]", "system_prompt"}) {
        if (has(jinja, mark) && !(std::string_view(mark) == "[TOOL_CALLS]" && has(jinja, "loop_messages"))) {
            refuse_template(std::string("[INST] with \"") + mark + "\"", name_);
        }
    }
    const std::set<std::string> begins = literals_with(jinja, "[INST]");
    const std::set<std::string> ends = literals_with(jinja, "[/INST]");
    if (begins.size() != 1 || ends.size() != 1) {
        refuse_template(
            "[INST] in " + std::to_string(begins.size()) + " forms, [/INST] in " + std::to_string(ends.size()), name_);
    }
    user_begin_ = *begins.begin();
    answer_begin_ = *ends.begin();
    trim_ = has(jinja, ".strip()") || has(jinja, "trim");
    if (llama2) {
        system_ = System::inside;
        system_begin_ = "<<SYS>>\n";
        system_end_ = "\n<</SYS>>\n\n";
    } else if (has(jinja, "system_message + \"\n\n\" + message[\"content\"]")) {
        system_ = System::inside;
        system_end_ = "\n\n";
    }
}

void ChatTemplate::read_gemma(const std::string& jinja) {
    family_ = "Gemma";
    if (!has(jinja, "<end_of_turn>\n") || !has(jinja, "trim")) {
        refuse_template("Gemma's marks without \"<end_of_turn>\" or \"trim\"", name_);
    }
    trim_ = true;
    user_begin_ = "<start_of_turn>user\n";
    answer_begin_ = "<end_of_turn>\n<start_of_turn>model\n";
}

ChatTemplate ChatTemplate::parse(std::string_view jinja, const std::string& bos, const std::string& name) {
    if (jinja.size() > kMostTemplateBytes) {
        throw Error("has " + std::to_string(jinja.size()) + " bytes, of which at most " +
                        std::to_string(kMostTemplateBytes) + " are read",
                    name);
    }
    const std::string text = replaced(std::string(jinja), "\\n", "\n");
    ChatTemplate t;
    t.name_ = name;
    t.begin_ = has(text, "bos_token") ? bos : "";
    struct Family {
        const char* mark;
        void (ChatTemplate::*read)(const std::string&);
    };
    static constexpr Family kFamilies[] = {{"<|im_start|>", &ChatTemplate::read_chatml},
                                           {"<|start_header_id|>", &ChatTemplate::read_llama3},
                                           {"[INST]", &ChatTemplate::read_inst},
                                           {"<start_of_turn>", &ChatTemplate::read_gemma}};
    const Family* found = nullptr;
    for (const Family& f : kFamilies) {
        if (has(text, f.mark)) {
            if (found != nullptr) {
                refuse_template(std::string("it has both \"") + found->mark + "\" and \"" + f.mark + "\"", name);
            }
            found = &f;
        }
    }
    if (found == nullptr) {
        refuse_template("it is none of ChatML, Llama 2, Llama 3, Mistral and Gemma", name);
    }
    if (has(text, "image")) {
        refuse_template("it is for images too", name);
    }
    (t.*found->read)(text);
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
    if (malformed_at(text) != std::string::npos) {
        throw Error("it is not UTF-8", utf8_name(jinja));
    }
    const Json& token = part_of(root, "bos_token");
    const Json& bos = token.is_object() && token.contains("content") ? token["content"] : token;
    *this = parse(text, bos.is_string() ? bos.get<std::string>() : "", utf8_name(own_file ? jinja : config));
}

std::string ChatTemplate::prompt(std::string_view user, std::string_view system) const {
    if (!system.empty() && system_ == System::none) {
        throw Error("the chat template (" + family_ + ") takes no system message", name_);
    }
    const std::string_view given = system.empty() ? std::string_view(default_system_) : system;
    const auto trimmed = [this](std::string_view text) {
        return trim_ ? stripped(std::string(text), true, true) : std::string(text);
    };
    const bool framed = !given.empty() || system_always_;
    std::string text = begin_;
    std::string question;
    if (framed && system_ == System::before) {
        text += system_begin_ + trimmed(given) + system_end_;
    } else if (framed) {
        question = system_begin_ + std::string(given) + system_end_;
    }
    question += user;
    return text + user_begin_ + trimmed(question) + answer_begin_;
}

}  // namespace vkf
