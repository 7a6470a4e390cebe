// SPDX-License-Identifier: Apache-2.0
// Chat templates against what `transformers` makes of them (tests/text/make_chat_cases.py).
#include "text/chat_template.h"

#include <doctest/doctest.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/base/error.h"

using namespace vkf;
using nlohmann::json;

TEST_SUITE_BEGIN("tokenizer");

TEST_CASE("tokenizer: chat templates that are recognised give the reference's text, others are refused") {
    // another file of make_chat_cases.py's
    const char* elsewhere = std::getenv("VKFORMER_CHAT_CASES");
    std::ifstream file(elsewhere != nullptr ? elsewhere : VKFORMER_SOURCE_DIR "/tests/text/chat.json");
    std::map<std::string, int> families;
    for (const json& c : json::parse(file)) {
        const std::string name = c[0];
        CAPTURE(name);
        try {
            const ChatTemplate chat = ChatTemplate::parse(c[1].get<std::string>(), "<s>", name);
            ++families[chat.family()];
            for (const json& one : c[2]) {
                const std::string user = one[0], system = one[1];
                CAPTURE(user);
                CAPTURE(system);
                if (one[2].is_null()) {
                    CHECK_THROWS_AS(chat.prompt(user, system), Error);
                    continue;
                }
                std::string got;
                try {
                    got = chat.prompt(user, system);
                } catch (const Error& error) {  // only a system message may be refused
                    CHECK_MESSAGE(!system.empty(), error.what());
                    continue;
                }
                CHECK(got == one[2].get<std::string>());
            }
        } catch (const Error& error) {
            ++families["refused"];
            const std::string what = error.what();
            CHECK(what.find(name + ": the chat template is not supported: ") == 0);
            if (elsewhere != nullptr) {
                MESSAGE(what);
            }
        }
    }
    if (elsewhere == nullptr) {
        CHECK(families ==
              std::map<std::string, int>{
                  {"ChatML", 3}, {"Gemma", 1}, {"Llama 2", 1}, {"Llama 3", 2}, {"Mistral", 2}, {"refused", 2}});
    } else {
        for (const auto& [family, count] : families) {
            MESSAGE(family << ": " << count);
        }
    }
}

TEST_CASE("tokenizer: ChatML is read only where it is written as it is given here") {
    const auto said = [](const std::string& role, const std::string& content, const std::string& end,
                         const std::string& before = "") {
        const std::string jinja =
            before + "{% for message in messages %}{{ '<|im_start|>' + message['role'] + " + role +
            " + message['content']" + content + " + " + end +
            " }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
        try {
            return ChatTemplate::parse(jinja, "<s>", "x").prompt("hi");
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    const auto is_refused = [](const std::string& text) {
        return text.starts_with("x: the chat template is not supported: ");
    };
    const std::string line = "'\\n'", end = "'<|im_end|>' + '\\n'",
                      question = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    CHECK(said(line, "", end) == question);
    CHECK(said(line, "", "'<|im_end|>\\n'") == question);
    CHECK(said(line, "", end, "{% if x %}{% endif %}{{- bos_token -}}") == "<s>" + question);
    CHECK(is_refused(said(line, "", "'<|im_end|>'")));
    CHECK(is_refused(said(line, "", "'<|im_end|>' + eos_token")));
    CHECK(is_refused(said("'\\n\\n'", "", end)));
    CHECK(is_refused(said(line, ".strip()", end)));
    CHECK(is_refused(said(line, "", end, "{% if false %}{{ bos_token }}{% endif %}")));
    CHECK(is_refused(said(line, "", end, "{% if bos_token %}{% endif %}")));
    CHECK_THROWS_AS(ChatTemplate::parse("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
                                        "'<|im_end|>\\n' }}{% endfor %}",
                                        "", "x"),
                    Error);
    // and in the template's own text
    CHECK(ChatTemplate::parse(
              "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
              "", "x")
              .prompt("hi") == question);
}

TEST_CASE("tokenizer: a chat template of nothing but marks is refused at once") {
    const auto refused = [](const std::string& part, const std::string& end) {
        std::string jinja;
        while (jinja.size() + part.size() + end.size() <= std::size_t{1} << 20) {
            jinja += part;
        }
        try {
            return ChatTemplate::parse(jinja + end, "", "marks").prompt("hi");
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    const std::string answer = "add_generation_prompt<|im_start|>assistant\n";
    CHECK(refused("<|im_start|>system\n", answer) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    CHECK(refused("<|im_start|>", answer) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    CHECK(refused("<|im_end|>\n", "<|im_start|>").find("other line breaks") != std::string::npos);
    CHECK(refused("{% if ", "{{ bos_token }}" + answer).find("under a condition") != std::string::npos);
    CHECK(refused("<|im_start|>system\nab<|im_end|>\n", answer) ==
          "<|im_start|>system\nab<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    CHECK(refused("Cutting Knowledge Date: ", "\n<|start_header_id|><|eot_id|>trim bos_token").find("one date") !=
          std::string::npos);
    CHECK(refused("[INST]", "'").find("[INST] in 0 forms") != std::string::npos);
    CHECK(refused("'[INST]' '[/INST]'", "") == "[INST]hi[/INST]");
    CHECK(refused("a", std::string((1 << 20) + 1, 'a')).find("of which at most 1048576 are read") != std::string::npos);
}

TEST_CASE("tokenizer: a template's day is English in every locale") {
    const ChatTemplate chat = ChatTemplate::parse(
        R"({{- bos_token }}{%- set date_string = strftime_now("%d %b %Y") %}{%- set date_string = "26 Jul 2024" %})"
        R"({{- "<|start_header_id|>system<|end_header_id|>\n\n" }}{{- "Cutting Knowledge Date: December 2023\n" }})"
        R"({{- "Today Date: " + date_string + "\n\n" }}|trim <|eot_id|>)",
        "<b>", "x");
    const std::string before = std::setlocale(LC_ALL, nullptr);
    // of these, those that the host has
    for (const char* locale : {"C", "C.UTF-8", "de_DE.UTF-8", "fr_FR.UTF-8", "ja_JP.UTF-8"}) {
        if (std::setlocale(LC_ALL, locale) == nullptr) {
            continue;
        }
        CAPTURE(locale);
        const std::string prompt = chat.prompt("hi");
        const std::size_t at = prompt.find("Today Date: ");
        REQUIRE(at != std::string::npos);
        const std::string day = prompt.substr(at + 12, 11);  // "26 Jul 2024"
        CHECK(day.find_first_not_of("0123456789") == 2);
        CHECK(std::string(" Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec ").find(day.substr(2, 5)) !=
              std::string::npos);
        CHECK(day.substr(7, 2) == "20");
        CHECK(prompt.substr(at + 23, 2) == "\n\n");
    }
    std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("tokenizer: a folder's chat template is found, or missed by name") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("vkformer-" + std::to_string(std::random_device{}()));
    fs::create_directories(folder);
    const auto refusal = [&] {
        try {
            return ChatTemplate(folder).prompt("hi");
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    CHECK(refusal().find("tokenizer_config.json: it has no chat template") != std::string::npos);
    const auto configure = [&](const json& config) { std::ofstream(folder / "tokenizer_config.json") << config; };
    configure(json::array());
    CHECK(refusal().find("it is not a JSON object") != std::string::npos);
    configure({{"chat_template", {{{"name", "default"}, {"template", "x"}}}}});
    CHECK(refusal().find("several with names") != std::string::npos);
    const std::string mistral = "{{ bos_token }}{{ '[INST] ' + messages[0]['content'] + ' [/INST]' }}";
    configure({{"chat_template", mistral}, {"bos_token", {{"content", "<bos>"}}}});
    CHECK(refusal() == "<bos>[INST] hi [/INST]");
    std::ofstream(folder / "chat_template.jinja") << "{{ '[INST]' + messages[0]['content'] + '[/INST]' }}";
    CHECK(refusal() == "[INST]hi[/INST]");
    fs::remove_all(folder);
}
