// SPDX-License-Identifier: Apache-2.0
// Around a text that a model is to continue: the token that begins it, and the texts that end the
// answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../runtime/base/export.h"
#include "tokenizer.h"

namespace vkf {

/// Says whether the token that begins a text stands before a prompt.
enum class BeginOfText : std::uint8_t {
    put,
    leave_out,
    as_tokenizer,  ///< left to the post-processor of tokenizer.json
};

/// Says what a checkpoint's folder asks for, as in transformers 4: Llama's and Gemma's tokenizers
/// obey add_bos_token of tokenizer_config.json, the others their post-processor. (transformers 5
/// goes by the post-processor alone where there is a tokenizer.json.) Where a folder lacks
/// tokenizer_config.json, or has a SentencePiece model and says nothing, `trained` decides: whether
/// the model was trained with the token (DecoderFacts::begins_texts). Throws Error where the file
/// is no JSON object.
VKF_API BeginOfText begin_of_text(const std::filesystem::path& folder, bool trained);

/// The ids of a text with the tokens that the tokenizer puts around it. `policy` decides whether
/// the token `begin` (DecoderFacts::begin) stands before them: once, not at all, or as the
/// tokenizer has it. If the text itself begins with that token, that one stays, and the first two
/// put no other before it. (What ChatTemplate::prompt() gives needs none of this:
/// Tokenizer::encode(text, false).)
VKF_API std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, BeginOfText policy,
                                                std::optional<std::int32_t> begin);

/// Cuts a text that comes in pieces at the first of some stops. It does not return the stop, and it
/// holds back what might begin a stop until the next pieces decide.
class VKF_API StopTexts {
public:
    /// Empty stops are left out.
    explicit StopTexts(std::vector<std::string> stops);

    /// Takes a piece; returns what is certain to come before a stop. Empty after a stop.
    std::string push(std::string_view piece);
    /// Returns what was held back, where no stop came.
    std::string finish();
    bool stopped() const noexcept { return stopped_; }

private:
    std::string release(std::size_t count);

    std::vector<std::string> stops_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace vkf
