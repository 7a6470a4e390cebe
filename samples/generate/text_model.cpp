// SPDX-License-Identifier: Apache-2.0
#include "text_model.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

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

/// Whether the model was trained with texts that begin with a token of their own: tokenizer_config.json says it, and where it does not,
/// Llama, Mistral and Gemma were.
bool wants_begin(const fs::path& model, const vkf::DecoderConfig& config) {
    const fs::path file = model / "tokenizer_config.json";
    if (fs::exists(file)) {
        const auto root = nlohmann::json::parse(vkf::read_text(file), nullptr, false);
        if (root.is_object() && root.contains("add_bos_token") && root["add_bos_token"].is_boolean()) {
            return root["add_bos_token"];
        }
    }
    return config.model_type == "llama" || config.model_type == "mistral" || config.model_type == "gemma2";
}

class IdsOut final : public TextOut {
public:
    std::string push(std::int32_t id) override {
        const std::string text = (first_ ? "" : " ") + std::to_string(id);
        first_ = false;
        return text;
    }
    std::string finish() override { return {}; }
    bool stopped() const override { return false; }

private:
    bool first_ = true;
};

#ifdef SAMPLE_WITH_TEXT

class WordsOut final : public TextOut {
public:
    WordsOut(const fs::path& model, std::vector<std::string> stop)
        : tokenizer_(model), stream_(tokenizer_), stop_(std::move(stop)) {}

    std::string push(std::int32_t id) override {
        held_ += stream_.push(id);
        return release(false);
    }
    std::string finish() override {
        held_ += stopped_ ? "" : stream_.finish();
        return release(true);
    }
    bool stopped() const override { return stopped_; }

private:
    /// The held text up to a stop, or to where one might begin.
    std::string release(bool all) {
        std::size_t end = held_.size();
        for (const std::string& s : stop_) {
            const std::size_t at = held_.find(s);
            if (at != std::string::npos) {
                stopped_ = true;
                end = std::min(end, at);
            }
        }
        if (stopped_) {
            const std::string text = held_.substr(0, end);
            held_.clear();
            return text;
        }
        for (const std::string& s : stop_) {
            for (std::size_t n = std::min(s.size() - 1, held_.size()); !all && n > 0; --n) {
                if (held_.ends_with(s.substr(0, n))) {
                    end = std::min(end, held_.size() - n);
                    break;
                }
            }
        }
        const std::string text = held_.substr(0, end);
        held_.erase(0, end);
        return text;
    }

    vkf::Tokenizer tokenizer_;
    vkf::TokenStream stream_;
    std::vector<std::string> stop_;
    std::string held_;
    bool stopped_ = false;
};

void put_begin(std::vector<std::int32_t>& ids, const Options& options, const vkf::DecoderConfig& config) {
    if (!options.no_bos && config.begin && (ids.empty() || ids.front() != *config.begin) &&
        wants_begin(options.model, config)) {
        ids.insert(ids.begin(), *config.begin);
    }
}

JudgedText judged(const std::string& line, const vkf::Tokenizer& tokenizer, const Options& options,
                  const vkf::DecoderConfig& config) {
    const std::size_t tab = line.find('\t');
    JudgedText text{tokenizer.encode(line.substr(0, tab))};
    put_begin(text.ids, options, config);
    if (tab != std::string::npos) {
        text.known = std::max<std::size_t>(text.ids.size(), 1);
        const std::vector<std::int32_t> answer = tokenizer.encode(line.substr(tab + 1));
        text.ids.insert(text.ids.end(), answer.begin(), answer.end());
        if (!config.end.empty()) {
            text.ids.push_back(config.end.front());
        }
    }
    text.ids.resize(std::min(text.ids.size(), static_cast<std::size_t>(config.max_positions)));
    return text;
}

#endif

[[maybe_unused]] void no_tokenizer() {
    throw vkf::Error(
        "this build has no tokenizers (it was made without PCRE2 and utf8proc); give token ids with --ids");
}

}  // namespace

std::vector<std::int32_t> prompt_ids(const Options& options, const vkf::DecoderConfig& config) {
    if (options.by_ids) {
        return read_ids(options.ids);
    }
    std::vector<std::int32_t> ids;
#ifdef SAMPLE_WITH_TEXT
    if (options.prompt.empty()) {
        throw vkf::Error("the prompt is empty");
    }
    const vkf::Tokenizer tokenizer(options.model);
    if (options.chat) {  // its special tokens are in the text
        return tokenizer.encode(vkf::ChatTemplate(options.model).prompt(options.prompt, options.system), false);
    }
    ids = tokenizer.encode(options.prompt);
    put_begin(ids, options, config);
#else
    no_tokenizer();
    wants_begin(options.model, config);
#endif
    return ids;
}

std::vector<JudgedText> judged_texts(const Options& options, const vkf::DecoderConfig& config) {
    std::vector<JudgedText> texts;
#ifdef SAMPLE_WITH_TEXT
    const vkf::Tokenizer tokenizer(options.model);
    std::istringstream file(vkf::read_text(options.texts));
    for (std::string line; std::getline(file, line);) {
        JudgedText text = judged(line, tokenizer, options, config);
        if (text.known < text.ids.size()) {
            texts.push_back(std::move(text));
        }
    }
#else
    no_tokenizer();
    static_cast<void>(config);
#endif
    if (texts.empty()) {
        throw vkf::Error("has no line of two tokens or more", options.texts.string());
    }
    return texts;
}

std::unique_ptr<TextOut> make_text_out(const Options& options) {
    if (options.by_ids) {
        return std::make_unique<IdsOut>();
    }
#ifdef SAMPLE_WITH_TEXT
    return std::make_unique<WordsOut>(options.model, options.stop);
#else
    no_tokenizer();
    return nullptr;
#endif
}
