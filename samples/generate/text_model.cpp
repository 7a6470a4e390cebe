// SPDX-License-Identifier: Apache-2.0
#include "text_model.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>

#ifdef SAMPLE_WITH_TEXT
#include <vkformer/text.h>
#endif

namespace {

namespace fs = std::filesystem;

std::vector<std::int32_t> read_ids(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::int32_t> ids;
    for (std::string word; in >> word;) {
        std::size_t used = 0;
        std::int32_t id = -1;
        try {
            id = std::stoi(word, &used);
        } catch (const std::exception&) {
        }
        if (used != word.size() || id < 0) {
            throw vkf::Error("\"" + word + "\" is not a token's id", "--ids");
        }
        ids.push_back(id);
    }
    return ids;
}

class IdsOut final : public TextOut {
public:
    /// `words` tells of stops; null where there are none.
    explicit IdsOut(std::unique_ptr<TextOut> words) : words_(std::move(words)) {}

    std::string push(std::int32_t id) override {
        const std::string text = (first_ ? "" : " ") + std::to_string(id);
        first_ = false;
        if (words_) {
            words_->push(id);
        }
        return text;
    }
    std::string finish() override { return {}; }
    bool stopped() const override { return words_ && words_->stopped(); }

private:
    std::unique_ptr<TextOut> words_;
    bool first_ = true;
};

[[noreturn]] void no_tokenizer(const fs::path& model) {
#ifdef SAMPLE_WITH_TEXT
    throw vkf::Error("has neither tokenizer.json nor tokenizer.model; token ids go with --ids, and without --stop",
                     model.string());
#else
    static_cast<void>(model);
    throw vkf::Error(
        "this build has no tokenizers (it was made without PCRE2 and utf8proc); token ids go with --ids, and without "
        "--stop");
#endif
}

bool has_tokenizer(const fs::path& model) {
#ifdef SAMPLE_WITH_TEXT
    return fs::exists(model / "tokenizer.json") || fs::exists(model / "tokenizer.model");
#else
    static_cast<void>(model);
    return false;
#endif
}

#ifdef SAMPLE_WITH_TEXT

class WordsOut final : public TextOut {
public:
    WordsOut(const vkf::Tokenizer& tokenizer, std::vector<std::string> stop)
        : stream_(tokenizer), text_(std::move(stop)) {}

    std::string push(std::int32_t id) override { return text_.push(stream_.push(id)); }
    std::string finish() override {
        const std::string last = text_.push(stream_.finish());
        return last + text_.finish();
    }
    bool stopped() const override { return text_.stopped(); }

private:
    vkf::TokenStream stream_;
    vkf::StopTexts text_;
};

#endif

}  // namespace

struct TextModel::Parts {
    Options options;
    vkf::DecoderFacts facts;
#ifdef SAMPLE_WITH_TEXT
    std::optional<vkf::Tokenizer> tokenizer = {};
    vkf::BeginOfText begin = vkf::BeginOfText::as_tokenizer;

    std::vector<std::int32_t> encoded(const std::string& text) const {
        return vkf::encode_prompt(*tokenizer, text, begin, facts.begin);
    }

    JudgedText judged(const std::string& line) const {
        const std::size_t tab = line.find('\t');
        JudgedText text{encoded(line.substr(0, tab))};
        if (tab != std::string::npos) {
            text.known = std::max<std::size_t>(text.ids.size(), 1);
            const std::vector<std::int32_t> answer = tokenizer->encode(line.substr(tab + 1), false);
            text.ids.insert(text.ids.end(), answer.begin(), answer.end());
            if (!facts.end.empty()) {
                text.ids.push_back(facts.end.front());
            }
        }
        text.ids.resize(std::min(text.ids.size(), static_cast<std::size_t>(facts.max_positions)));
        return text;
    }
#endif
};

TextModel::TextModel(const Options& options, const vkf::DecoderFacts& facts)
    : parts_(std::make_unique<Parts>(Parts{options, facts})) {
#ifdef SAMPLE_WITH_TEXT
    const bool needed = !options.by_ids || !options.stop.empty();
    if (needed && has_tokenizer(options.model)) {
        parts_->tokenizer.emplace(options.model);
        parts_->begin =
            options.no_bos ? vkf::BeginOfText::leave_out : vkf::begin_of_text(options.model, facts.begins_texts);
    }
#endif
}

TextModel::~TextModel() = default;

std::vector<std::int32_t> TextModel::prompt_ids(const std::string& prompt) const {
    const Options& options = parts_->options;
    if (options.by_ids) {
        return read_ids(options.ids);
    }
    if (prompt.empty()) {
        throw vkf::Error("the prompt is empty");
    }
    if (!has_tokenizer(options.model)) {
        if (options.dry_run) {
            std::fprintf(stderr, "no tokenizer: the prompt counts as one token\n");
            return {0};
        }
        no_tokenizer(options.model);
    }
#ifdef SAMPLE_WITH_TEXT
    if (options.chat) {  // its special tokens are in the text
        return parts_->tokenizer->encode(vkf::ChatTemplate(options.model).prompt(prompt, options.system), false);
    }
    return parts_->encoded(prompt);
#else
    return {};
#endif
}

std::vector<JudgedText> TextModel::judged_texts() const {
    const Options& options = parts_->options;
    std::vector<JudgedText> texts;
    if (!has_tokenizer(options.model)) {
        no_tokenizer(options.model);
    }
#ifdef SAMPLE_WITH_TEXT
    std::istringstream file(vkf::read_text(options.texts));
    std::size_t number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        if (line.ends_with('\r')) {  // as Windows ends lines
            line.pop_back();
        }
        JudgedText text;
        try {
            text = parts_->judged(line);
        } catch (const vkf::Error& e) {  // as for what is not UTF-8
            throw vkf::Error(e.what(), options.texts.string() + ", line " + std::to_string(number));
        }
        if (text.known < text.ids.size()) {
            texts.push_back(std::move(text));
        }
    }
#endif
    if (texts.empty()) {
        throw vkf::Error("has no line of two tokens or more", options.texts.string());
    }
    return texts;
}

std::unique_ptr<TextOut> TextModel::text_out() const {
    const Options& options = parts_->options;
    if (options.by_ids && options.stop.empty()) {
        return std::make_unique<IdsOut>(nullptr);
    }
    if (!has_tokenizer(options.model)) {
        no_tokenizer(options.model);
    }
#ifdef SAMPLE_WITH_TEXT
    auto words = std::make_unique<WordsOut>(*parts_->tokenizer, options.stop);
    if (options.by_ids) {
        return std::make_unique<IdsOut>(std::move(words));
    }
    return words;
#else
    return nullptr;
#endif
}
