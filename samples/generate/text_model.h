// SPDX-License-Identifier: Apache-2.0
// Between people's text and the model's token ids.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "options.h"

/// The text of tokens as they come, cut at the first of the stops.
class TextOut {
public:
    virtual ~TextOut() = default;
    /// What can be printed now.
    virtual std::string push(std::int32_t id) = 0;
    /// What was held back at the end.
    virtual std::string finish() = 0;
    virtual bool stopped() const = 0;
};

/// The prompt's ids, as --ids or the folder's tokenizer gives them, with the id that begins a text where the model was trained with it.
/// Throws vkf::Error for an empty prompt, or where there is no tokenizer; with --dry-run one id stands for the prompt then.
std::vector<std::int32_t> prompt_ids(const Options& options, const vkf::DecoderConfig& config);

/// A text of which the tokens from `known`, 1 or more, on are judged.
struct JudgedText {
    std::vector<std::int32_t> ids;
    std::size_t known = 1;
};

/// The lines of the file options.texts, each with the id that begins a text, where the model was trained with it; answers (what comes behind
/// a tab) with one that ends it. What is longer than the model takes is cut. Throws vkf::Error where nothing is left to judge.
std::vector<JudgedText> judged_texts(const Options& options, const vkf::DecoderConfig& config);

/// Ids with --ids, text otherwise. Throws vkf::Error where text or stops are asked for and there is no tokenizer.
std::unique_ptr<TextOut> make_text_out(const Options& options);
