// SPDX-License-Identifier: Apache-2.0
#include "text_model.h"

#include <algorithm>
#include <cstdio>
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

/// The id before a text.
enum class Begin {
    put,
    leave_out,
    as_tokenizer,  ///< what tokenizer.json's post-processor does
};

/// As transformers has it: Llama's and Gemma's tokenizers obey add_bos_token of tokenizer_config.json, the rest their post-processor. A
/// folder without that file, or with a SentencePiece model and nothing said, is taken for what its architecture was trained with.
Begin begin_of(const fs::path& model, const vkf::DecoderConfig& config) {
    const fs::path file = model / "tokenizer_config.json";
    const bool trained =
        config.model_type == "llama" || config.model_type == "mistral" || config.model_type == "gemma2";
    const Begin otherwise = trained ? Begin::put : Begin::as_tokenizer;
    if (!fs::exists(file)) {
        return otherwise;
    }
    const auto root = nlohmann::json::parse(vkf::read_text(file), nullptr, false);
    if (!root.is_object()) {
        throw vkf::Error("is not a JSON object", file.string());
    }
    const auto text = [&](const char* name) {
        const auto found = root.find(name);
        return found != root.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const std::string kind = text("tokenizer_class");
    const auto obeys = [&](const char* family) { return kind.starts_with(family); };
    const bool obedient = kind.empty() || obeys("Llama") || obeys("CodeLlama") || obeys("Gemma");
    const bool json = fs::exists(model / "tokenizer.json");
    const auto said = root.find("add_bos_token");
    if (said != root.end() && said->is_boolean() && (obedient || !json)) {
        return *said ? Begin::put : Begin::leave_out;
    }
    return json ? Begin::as_tokenizer : otherwise;
}

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

/// The text's ids, with what is put around them.
std::vector<std::int32_t> encoded(const vkf::Tokenizer& tokenizer, const std::string& text, const Options& options,
                                  const vkf::DecoderConfig& config) {
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    const Begin begin = begin_of(options.model, config);
    const bool there = config.begin && !ids.empty() && ids.front() == *config.begin;
    if (options.no_bos || begin == Begin::leave_out) {
        const std::vector<std::int32_t> plain = tokenizer.encode(text, false);
        // the text's own, or nobody's
        const bool own = ids.size() >= plain.size() && std::equal(plain.begin(), plain.end(), ids.begin());
        if (there && !own) {
            ids.erase(ids.begin());
        }
    } else if (begin == Begin::put && config.begin && !there) {
        ids.insert(ids.begin(), *config.begin);
    }
    return ids;
}

JudgedText judged(const std::string& line, const vkf::Tokenizer& tokenizer, const Options& options,
                  const vkf::DecoderConfig& config) {
    const std::size_t tab = line.find('\t');
    JudgedText text{encoded(tokenizer, line.substr(0, tab), options, config)};
    if (tab != std::string::npos) {
        text.known = std::max<std::size_t>(text.ids.size(), 1);
        const std::vector<std::int32_t> answer = tokenizer.encode(line.substr(tab + 1), false);
        text.ids.insert(text.ids.end(), answer.begin(), answer.end());
        if (!config.end.empty()) {
            text.ids.push_back(config.end.front());
        }
    }
    text.ids.resize(std::min(text.ids.size(), static_cast<std::size_t>(config.max_positions)));
    return text;
}

#endif

}  // namespace

std::vector<std::int32_t> prompt_ids(const Options& options, const vkf::DecoderConfig& config) {
    if (options.by_ids) {
        return read_ids(options.ids);
    }
    if (options.prompt.empty()) {
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
    const vkf::Tokenizer tokenizer(options.model);
    if (options.chat) {  // its special tokens are in the text
        return tokenizer.encode(vkf::ChatTemplate(options.model).prompt(options.prompt, options.system), false);
    }
    return encoded(tokenizer, options.prompt, options, config);
#else
    static_cast<void>(config);
    return {};
#endif
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
    static_cast<void>(config);
    no_tokenizer(options.model);
#endif
    if (texts.empty()) {
        throw vkf::Error("has no line of two tokens or more", options.texts.string());
    }
    return texts;
}

std::unique_ptr<TextOut> make_text_out(const Options& options) {
    if (options.by_ids && options.stop.empty()) {
        return std::make_unique<IdsOut>(nullptr);
    }
    if (!has_tokenizer(options.model)) {
        no_tokenizer(options.model);
    }
#ifdef SAMPLE_WITH_TEXT
    auto words = std::make_unique<WordsOut>(options.model, options.stop);
    if (options.by_ids) {
        return std::make_unique<IdsOut>(std::move(words));
    }
    return words;
#else
    return nullptr;
#endif
}
