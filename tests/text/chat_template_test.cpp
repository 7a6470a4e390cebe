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
#include <set>

#include "runtime/base/error.h"

using namespace vkf;
using nlohmann::json;

TEST_SUITE_BEGIN("tokenizer");

TEST_CASE("tokenizer: chat templates that are recognised give the reference's text, others are refused") {
    // another file of make_chat_cases.py's
    const char* elsewhere = std::getenv("VKFORMER_CHAT_CASES");
    std::ifstream file(elsewhere != nullptr ? elsewhere : VKFORMER_SOURCE_DIR "/tests/text/chat.json");
    std::map<std::string, int> families;
    std::set<std::string> refused;
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
            refused.insert(name);
            const std::string what = error.what();
            CHECK(what.find(name + ": the chat template is not supported: ") == 0);
            if (elsewhere != nullptr) {
                MESSAGE(what);
            }
        }
    }
    if (elsewhere == nullptr) {
        CHECK(families ==
              std::map<std::string, int>{{"ChatML", 7}, {"Gemma", 2}, {"Llama 2", 2}, {"Llama 3", 4}, {"Mistral", 5}});
        CHECK(refused == std::set<std::string>{"chatml_thinking", "chatml_opening", "chatml_left", "chatml_lines",
                                               "chatml_suffix", "chatml_human", "chatml_preamble", "chatml_year",
                                               "llama2_asks", "other"});
    } else {
        for (const auto& [family, count] : families) {
            MESSAGE(family << ": " << count);
        }
        MESSAGE("refused: " << refused.size());
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
    CHECK(said(line, "", end, "{% if false %}{{ bos_token }}{% endif %}") == question);
    CHECK(said(line, "", end, "{% if bos_token %}{% endif %}") == question);
    CHECK(is_refused(said(line, "", end, "{% if messages[0].content == 'hi' %}{{ bos_token }}{% endif %}")));
    CHECK(is_refused(said(line, "", end, "{{ 'You are terse.' }}")));
    CHECK(is_refused(said(line, "|upper", end)));
    CHECK(is_refused(said(line, "", end + " + '!'")));
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

TEST_CASE("tokenizer: a chat template of a megabyte of one thing is read or refused at once") {
    const auto read = [](const std::string& part, const std::string& end, const std::string& begin = "") {
        std::string jinja = begin;
        while (!part.empty() && jinja.size() + part.size() + end.size() <= std::size_t{1} << 20) {
            jinja += part;
        }
        try {
            return ChatTemplate::parse(jinja + end, "", "marks").prompt("hi");
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    const auto holds = [](const std::string& text, std::string_view part) {
        CAPTURE(text);
        CHECK(text.find(part) != std::string::npos);
    };
    const std::string question = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
                      ask = "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n\n";
    CHECK(read("", ask) == question);
    CHECK(read("{% set a = 'b' %}{# c #}\n", ask) == question);
    CHECK(read("{% if false %}{% endif %}", ask) == question);
    CHECK(read("<|im_start|>system\nab<|im_end|>\n", ask).size() > 1'000'000);
    holds(read("<|im_start|>", ask), "before the question");
    holds(read("<|im_start|>", ""), "it writes the question 0 times");
    holds(read("{% for a in b %}", "[INST]"), "its blocks are nested deeper than 64");
    holds(read("{% if ", ask), "a tag in it does not end");
    holds(read("a", "[INST]", "{{ '"), "a string in it does not end");
    holds(read("(", "1 }}[INST]", "{{ "), "a tag in it does not end");
    holds(read("{#", ask), "a comment in it does not end");
    for (const std::string open : {"(", "[", "f(", "a[", "x if x else "}) {
        std::string jinja = "[INST]{{ ";
        for (int i = 0; i < 100; ++i) {
            jinja += open;
        }
        jinja += "1" + std::string(open.ends_with(' ') ? 0 : 100, open.back() == '[' ? ']' : ')');
        holds(read("", jinja + " }}"), "is nested deeper than 64");
    }
    holds(read("not ", "1 }}[INST]", "{{ "), "which is not known");
    holds(read("|trim", " }}", "[INST]{{ messages[0].content"), "it does more than chat templates do");
    // what doubles, and what runs for ever
    holds(read("{% set a = a + a %}", ask, "{% set a = 'a' %}"), "it does more than chat templates do");
    std::string loops = "[INST]{% set list = [1, 2, 3, 4, 5, 6, 7, 8] %}", ends;
    for (int i = 0; i < 60; ++i) {
        loops += "{% for a in list %}";
        ends += "{% endfor %}";
    }
    holds(read("", loops + ends), "it does more than chat templates do");
    CHECK(read("a", std::string((1 << 20) + 1, 'a')).find("of which at most 1048576 are read") != std::string::npos);
}

TEST_CASE("tokenizer: what a chat template's expressions give") {
    const auto written = [](const std::string& expression, const std::string& before = "") {
        const std::string jinja = before + "{% if " + expression +
                                  " %}[INST]{{ messages[0].content }}[/INST]{% else %}no[INST]"
                                  "{{ messages[0].content }}[/INST]{% endif %}";
        try {
            return ChatTemplate::parse(jinja, "<s>", "x").prompt("hi").substr(0, 2) == "no" ? 'n' : 'y';
        } catch (const Error& error) {
            CHECK(std::string(error.what()).starts_with("x: the chat template is not supported: "));
            return '?';
        }
    };
    for (const char* yes : {"1 + 2 * 3 == 7",
                            "-3 % 2 == 1",
                            "'a' 'b' == \"ab\"",
                            "'a' ~ 'b' == 'ab'",
                            "not false and true",
                            "none is none",
                            "tools is none",
                            "tools is defined",
                            "nothing is not defined",
                            "nothing is undefined",
                            "messages|length == 1",
                            "messages[-1].role == 'user'",
                            "messages[0]['role'] in ['system', 'user']",
                            "messages[5] is not defined",
                            "messages[::-1][0] == messages[0]",
                            "messages[:1]",
                            "not messages[1:]",
                            "'role' in messages[0]",
                            "'tool_calls' not in messages[0]",
                            "messages[0].tool_calls is not defined",
                            "messages[0].content is string",
                            "messages[0].content is not none",
                            "bos_token == '<s>'",
                            "(nothing | default('x')) == 'x'",
                            "(' x ' | trim) == 'x'",
                            "' x '.strip() == 'x'",
                            "messages|selectattr('role', 'equalto', 'user')|list",
                            "not messages|rejectattr('role', '==', 'user')|list",
                            "messages|selectattr('tool_calls', 'undefined')|list",
                            "1 < 2 < 3",
                            "not 1 < 2 > 3",
                            "3 >= 3 and 2 <= 2",
                            "'b' in 'abc'",
                            "true is true and false is false",
                            "none is not true",
                            "('a' if false else 'b') == 'b'",
                            "strftime_now is defined",
                            "enable_thinking is not defined or enable_thinking is true",
                            "'\\x41\\u0042\\103\\n' == 'ABC\n'",
                            "messages is not string and messages is iterable"}) {
        CAPTURE(yes);
        CHECK(written(yes) == 'y');
        CHECK(written("not (" + std::string(yes) + ")") == 'n');
    }
    for (const char* unknown :
         {"messages[0].content", "'x' in messages[0].content", "messages[0].content == 'x'",
          "messages[0].content | upper", "messages[0].content.startswith('x')", "messages[0].content | trim",
          "messages[0].get('role') == 'user'", "eos_token", "range(3)", "1 / 2", "2000000000 * 2", "1.5", "{'a': 1}",
          "messages | length is divisibleby 1", "'a' + 1", "messages[::2]", "'a' | length", "undefined_function()",
          "messages[0].content|length > 3"}) {
        CAPTURE(unknown);
        CHECK(written(unknown) == '?');
        CHECK(written("not (" + std::string(unknown) + ")") == '?');
        CHECK(written("false and (" + std::string(unknown) + ")") == 'n');
        CHECK(written("true or (" + std::string(unknown) + ")") == 'y');
        CHECK(written("a", "{% set a = 1 %}{% if " + std::string(unknown) + " %}{% set a = 0 %}{% endif %}") == '?');
    }
    for (const char* broken : {"", "(", "1 +", "a b", "1 = 1", "'a", "messages[", "messages[]", "a.", "a |", "a is",
                               ")", "'\\xg1' == 'a'", "'\\ud800' == 'a'", "'\\N{DIGIT ONE}' == '1'"}) {
        CAPTURE(broken);
        CHECK(written(broken) == '?');
    }
    // what is set in a loop is gone behind it, unless it is of a namespace
    // what selectattr gives is true whatever is in it, and can be gone through once
    const std::string system = "messages|selectattr('role', 'equalto', 'system')";
    CHECK(written(system) == 'y');
    CHECK(written("a", "{% set a = " + system + " %}") == 'y');
    CHECK(written("(" + system + "|list)") == 'n');
    CHECK(written("(" + system + ")|length == 0") == '?');
    CHECK(written("(a|list)|length == 0", "{% set a = " + system + " %}") == '?');
    // the same loop goes on
    CHECK(written("a.l.index == 1",
                  "{% set a = namespace() %}{% for m in messages %}{% set a.l = loop %}{% endfor %}") == '?');
    CHECK(written("bos_token is defined") == 'y');
    CHECK(written("a == 1", "{% set a = 1 %}{% for m in messages %}{% set a = 2 %}{% endfor %}") == 'y');
    CHECK(written("a.b == 2", "{% set a = namespace(b=1) %}{% for m in messages %}{% set a.b = 2 %}{% endfor %}") ==
          'y');
    CHECK(written("a == 'first'",
                  "{% set a = '' %}{% if not tools %}{% set a = 'first' %}{% endif %}"
                  "{% for m in [] %}{% else %}{% set a = a + 'last' %}{% endfor %}") == 'y');
}

TEST_CASE("tokenizer: a template's day is English in every locale") {
    const ChatTemplate chat = ChatTemplate::parse(
        R"({{- bos_token }}{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %})"
        R"({%- set date_string = "26 Jul 2024" %}{%- endif %}{{- "<|start_header_id|>system<|end_header_id|>\n\n" }})"
        R"({{- "Cutting Knowledge Date: December 2023\n" }}{{- "Today Date: " + date_string + "\n\n<|eot_id|>" }})"
        R"({{- "<|start_header_id|>user<|end_header_id|>\n\n" + messages[0].content|trim + "<|eot_id|>" }})"
        R"({{- "<|start_header_id|>assistant<|end_header_id|>\n\n" }})",
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

TEST_CASE("tokenizer: a chat template that raises refuses the messages, wherever it does") {
    const auto refuses = [](const std::string& raises) {
        const ChatTemplate chat =
            ChatTemplate::parse("{% for m in messages %}{% if m.role == 'system' %}" + raises +
                                    "{{ m.content }}{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}",
                                "", "x");
        CHECK(chat.prompt("hi") == "[INST]hi[/INST]");
        try {
            chat.prompt("hi", "be terse");
            return false;
        } catch (const Error&) {
            return true;
        }
    };
    CHECK_FALSE(refuses(""));
    for (const std::string code :
         {"{{ raise_exception('no') }}", "{% set a = raise_exception('no') %}",
          "{% if raise_exception('no') %}{% endif %}", "{% if not raise_exception('no') %}{% endif %}",
          "{% if false or raise_exception('no') %}{% endif %}", "{% if raise_exception('no') == 1 %}{% endif %}",
          "{% for a in raise_exception('no') %}{% endfor %}"}) {
        CAPTURE(code);
        CHECK(refuses(code));
    }
}

TEST_CASE("tokenizer: a chat template has bos_token where the tokenizer has one, and strips as Python does") {
    const std::string question = "[INST]{{ messages[0].content|trim }}[/INST]";
    const auto prompt = [&](const std::string& before, const char* bos) {
        return ChatTemplate::parse(before + question, bos, "x").prompt("\x1c hi\x1f ");
    };
    CHECK(prompt("{{ bos_token }}", "<s>") == "<s>[INST]hi[/INST]");
    CHECK(prompt("{{ bos_token }}", "") == "[INST]hi[/INST]");
    CHECK(prompt("{% if bos_token is defined %}a{% endif %}", "") == "[INST]hi[/INST]");
    CHECK(prompt("{% if bos_token is defined %}a{% endif %}", "<s>") == "a[INST]hi[/INST]");
}
