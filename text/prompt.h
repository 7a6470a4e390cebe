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

/// Whether the token that begins a text stands before a prompt.
enum class BeginOfText : std::uint8_t {
    put,
    leave_out,
    as_tokenizer,  ///< what the post-processor of tokenizer.json does
};

/// What a checkpoint's folder asks for, as transformers has it: Llama's and Gemma's tokenizers obey
/// add_bos_token of tokenizer_config.json, the others their post-processor. A folder without that
/// file, or with a SentencePiece model and nothing said, is taken for what the model was trained
/// with: `trained` (DecoderFacts::begins_texts). Throws Error where the file is no JSON object.
VKF_API BeginOfText begin_of_text(const std::filesystem::path& folder, bool trained);

/// The ids of a text with what the tokenizer puts around them, but for the token `begin`
/// (DecoderFacts::begin), which stands before them once, not, or as the tokenizer has it. One that
/// the text itself begins with stays.
VKF_API std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, BeginOfText policy,
                                                std::optional<std::int32_t> begin);

/// A text that comes in pieces, up to the first of some stops. A stop is not given out, and nothing
/// that might begin one is before the next pieces tell.
class VKF_API StopTexts {
public:
    /// Empty stops are left out.
    explicit StopTexts(std::vector<std::string> stops);

    /// What can be given out once this piece has come; nothing after a stop.
    std::string push(std::string_view piece);
    /// What was held back, where no stop came.
    std::string finish();
    bool stopped() const noexcept { return stopped_; }

private:
    std::string release(std::size_t count);

    std::vector<std::string> stops_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace vkf
