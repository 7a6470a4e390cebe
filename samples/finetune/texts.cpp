// SPDX-License-Identifier: Apache-2.0
#include "texts.h"

#include <charconv>
#include <cstdint>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#ifdef SAMPLE_WITH_TEXT
#include <vkformer/text.h>
#endif

namespace {

namespace fs = std::filesystem;

std::string place(const fs::path& file, std::size_t line) { return file.string() + ", line " + std::to_string(line); }

/// Keeps a text; nothing can be learned from less than two tokens.
void keep(Texts& texts, std::vector<std::int32_t> ids, const fs::path& file, std::size_t line) {
    if (ids.size() == 1) {
        throw vkf::Error("has one token; a text needs two, for the second is learned from the first",
                         place(file, line));
    }
    if (!ids.empty()) {
        texts.push_back(std::move(ids));
    }
}

Texts some(Texts texts, const fs::path& file) {
    if (texts.empty()) {
        throw vkf::Error("has no text", file.string());
    }
    return texts;
}

}  // namespace

Texts read_id_lines(const fs::path& file, const vkf::DecoderFacts& facts) {
    std::istringstream in(vkf::read_text(file));
    Texts texts;
    std::size_t number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        std::istringstream words(line);
        std::vector<std::int32_t> ids;
        for (std::string word; words >> word;) {
            std::int32_t id = -1;
            const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
            if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= facts.vocab_size) {
                throw vkf::Error(
                    "\"" + word.substr(0, 40) + "\" is not a token's id below " + std::to_string(facts.vocab_size),
                    place(file, number));
            }
            ids.push_back(id);
        }
        keep(texts, std::move(ids), file, number);
    }
    return some(std::move(texts), file);
}

Texts read_text_lines(const fs::path& file, const fs::path& model, const vkf::DecoderFacts& facts) {
#ifdef SAMPLE_WITH_TEXT
    const vkf::Tokenizer tokenizer(model);
    const vkf::BeginOfText begin = vkf::begin_of_text(model, facts.begins_texts);
    std::istringstream in(vkf::read_text(file));
    Texts texts;
    std::size_t number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.ends_with('\r')) {  // as Windows ends lines
            line.pop_back();
        }
        if (line.empty()) {
            continue;
        }
        std::vector<std::int32_t> ids;
        try {
            ids = vkf::encode_prompt(tokenizer, line, begin, facts.begin);
        } catch (const vkf::Error& e) {  // as for what is not UTF-8
            throw vkf::Error(e.what(), place(file, number));
        }
        if (!facts.end.empty() && (ids.empty() || ids.back() != facts.end.front())) {
            ids.push_back(facts.end.front());
        }
        keep(texts, std::move(ids), file, number);
    }
    return some(std::move(texts), file);
#else
    static_cast<void>(file);
    static_cast<void>(model);
    static_cast<void>(facts);
    throw vkf::Error("this build has no tokenizers (it was made without PCRE2 and utf8proc); token ids go with --ids");
#endif
}

std::size_t cut(Texts& texts, std::int64_t most) {
    std::size_t longer = 0;
    for (std::vector<std::int32_t>& text : texts) {
        if (static_cast<std::int64_t>(text.size()) > most) {
            text.resize(static_cast<std::size_t>(most));
            ++longer;
        }
    }
    return longer;
}
