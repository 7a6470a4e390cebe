// SPDX-License-Identifier: Apache-2.0
// SentencePiece models (tokenizer.model), run by libsentencepiece.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/model.h"

namespace vkf::text {

struct SentencePiece {
    std::unique_ptr<TokenModel> model;
    std::vector<AddedToken> added;
    OwnedJson rest;  ///< post-processor and decoder, in tokenizer.json's terms
};

/// `content`: the model file's. From the folder tokenizer_config.json, special_tokens_map.json and
/// added_tokens.json are read where they are there. Throws Error where this build has no
/// libsentencepiece, and naming what is not supported.
SentencePiece read_sentencepiece(std::string_view content, const std::filesystem::path& folder);

}  // namespace vkf::text
