// SPDX-License-Identifier: Apache-2.0
// Tokenizers.
#include <cstdint>
#include <filesystem>

#include <vkformer/text.h>

#include "bind.h"

namespace py {

template <>
struct Names<vkf::BeginOfText> {
    static constexpr const char* kWhat = "policy";
    static constexpr const char* kNames[] = {"put", "leave_out", "as_tokenizer"};
    static constexpr auto kHint = nb::detail::const_name("typing.Literal['put', 'leave_out', 'as_tokenizer']");
};

namespace {

using T = vkf::Tokenizer;
using Ids = std::vector<std::int32_t>;

}  // namespace

void bind_text(nb::module_& m) {
    nb::class_<T>(m, "Tokenizer",
                  "Text to token ids and back, as tokenizer.json or a SentencePiece model says. Immutable; several "
                  "threads may use it.")
        .def(nb::init<const std::filesystem::path&>(), "path"_a, nb::call_guard<Released>(),
             "A tokenizer.json, a tokenizer.model, or a folder with one.")
        .def_static(
            "parse", [](const std::string& json, const std::string& file) { return T::parse(json, file); }, "json"_a,
            "name"_a, nb::call_guard<Released>(),
            "Reads the text of a tokenizer.json; `name` stands for the file in errors.")
        .def(
            "encode",
            [](const T& t, const std::string& text, bool special, bool truncate) {
                const Released release;
                return t.encode(text, special, truncate);
            },
            "text"_a, "special"_a = true, "truncate"_a = false,
            "The ids of a text; special: with the tokens that the post-processor puts around it.")
        .def(
            "encode_within",
            [](const T& t, const std::string& text, std::int64_t most, bool lower_case) {
                const Released release;
                return t.encode_within(text, most, lower_case);
            },
            "text"_a, "most"_a, "lower_case"_a = false,
            "The ids of a text with the tokens that the post-processor puts around it, at most `most` in all but never "
            "fewer than these; lower_case: of the text in lower case.")
        .def(
            "decode",
            [](const T& t, const Ids& ids, bool skip_special) {
                const Released release;
                return t.decode(ids, skip_special);
            },
            "ids"_a, "skip_special"_a = true,
            nb::sig("def decode(self, ids: typing.Sequence[int], skip_special: bool = True) -> str"),
            "The text of ids; skip_special: without tokens such as </s>.")
        .def(
            "find", [](const T& t, const std::string& token) { return t.find(token); }, "token"_a,
            "The id of a token, or None.")
        .def("token", &T::token, "id"_a, "The token of an id; empty when there is no such id.")
        .def("size", &T::size, "All ids are below this.")
        .def("__len__", [](const T& t) { return static_cast<std::size_t>(t.size()); });
    nb::class_<vkf::TokenStream>(m, "TokenStream", "Turns tokens into text as they come, in whole characters.")
        .def(nb::init<const T&>(), "tokenizer"_a, nb::keep_alive<1, 2>())
        .def("push", &vkf::TokenStream::push, "id"_a, "The text that this id adds; empty until a character is whole.")
        .def("finish", &vkf::TokenStream::finish, "The text that is left at the end.");
    nb::class_<vkf::StopTexts>(m, "StopTexts", "Cuts a text that comes in pieces at the first of some stops.")
        .def(nb::init<std::vector<std::string>>(), "stops"_a)
        .def(
            "push", [](vkf::StopTexts& s, const std::string& piece) { return s.push(piece); }, "piece"_a,
            "What of the text so far is certain to come before a stop; empty behind one.")
        .def("finish", &vkf::StopTexts::finish, "What was held back, where no stop came.")
        .def_prop_ro("stopped", &vkf::StopTexts::stopped, "True: a stop came.");
    nb::class_<vkf::ChatTemplate>(
        m, "ChatTemplate",
        "Puts a question as a chat model was trained to see it: ChatML, Llama 2 and 3, Mistral, Gemma.")
        .def(nb::init<const std::filesystem::path&>(), "folder"_a, nb::call_guard<Released>())
        .def_static(
            "parse",
            [](const std::string& jinja, const std::string& bos, const std::string& file) {
                return vkf::ChatTemplate::parse(jinja, bos, file);
            },
            "jinja"_a, "bos"_a, "name"_a,
            "Reads a template in Jinja; `bos` is the token that begins texts, `name` stands for the file in errors.")
        .def(
            "prompt",
            [](const vkf::ChatTemplate& t, const std::string& user, const std::string& system) {
                return t.prompt(user, system);
            },
            "user"_a, "system"_a = "",
            "The text that a model continues with its answer, special tokens included. system: the system message; "
            "empty: the template's own.")
        .def_prop_ro(
            "family", [](const vkf::ChatTemplate& t) { return t.family(); },
            "The name of the family: \"ChatML\", \"Llama 3\", ...");
    m.def(
        "begin_of_text",
        [](const std::filesystem::path& folder, bool trained) { return name(vkf::begin_of_text(folder, trained)); },
        "folder"_a, "trained"_a, nb::call_guard<Released>(),
        nb::sig("def begin_of_text(folder: str | os.PathLike[str], trained: bool) -> "
                "typing.Literal['put', 'leave_out', 'as_tokenizer']"),
        "Says whether the token that begins a text stands before a prompt: put, leave_out or as_tokenizer.");
    m.def(
        "encode_prompt",
        [](const T& tokenizer, const std::string& text, const Choice<vkf::BeginOfText>& policy,
           std::optional<std::int32_t> begin) {
            const vkf::BeginOfText put = policy;
            const Released release;
            return vkf::encode_prompt(tokenizer, text, put, begin);
        },
        "tokenizer"_a, "text"_a, "policy"_a, "begin"_a.none(),
        "The ids of a prompt, with the token that begins texts as `policy` says.");
}

}  // namespace py
