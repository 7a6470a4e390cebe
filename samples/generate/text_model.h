// SPDX-License-Identifier: Apache-2.0
// Between people's text and the model's token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "options.h"

/// The text of tokens as they come, cut at the first of the stops.
class TextOut {
public:
    virtual ~TextOut() = default;
    /// Takes the next token, and gives the text that can be printed now.
    virtual std::string push(std::int32_t id) = 0;
    /// Gives the text that was held back at the end.
    virtual std::string finish() = 0;
    virtual bool stopped() const = 0;
};

/// A text of which the tokens from `known`, 1 or more, on are judged.
struct JudgedText {
    std::vector<std::int32_t> ids;
    std::size_t known = 1;
};

/// The folder's tokenizer, read once, and what the options ask of it.
class TextModel {
public:
    /// Throws vkf::Error where the options need a tokenizer that cannot be read. Where there is
    /// none, what needs it throws.
    TextModel(const Options& options, const vkf::DecoderFacts& facts);
    ~TextModel();

    /// The prompt's ids, as --ids or the tokenizer gives them, with the id that begins a text where
    /// the model was trained with it. Throws vkf::Error for an empty prompt; with --dry-run and no
    /// tokenizer one id stands for the prompt.
    std::vector<std::int32_t> prompt_ids(const std::string& prompt) const;
    /// The lines of the file options.texts, each with the id that begins a text; answers (what
    /// comes behind a tab) with one that ends it. What is longer than the model takes is cut.
    /// Throws vkf::Error where nothing is left to judge.
    std::vector<JudgedText> judged_texts() const;
    /// Ids with --ids, text otherwise. Must not outlive this object.
    std::unique_ptr<TextOut> text_out() const;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};
