// SPDX-License-Identifier: Apache-2.0
// How a text is cut into words before the model sees it: tokenizer.json's "pre_tokenizer".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text/json.h"

namespace vkf::text {

struct Piece {
    std::string text;
    bool first = false;  ///< begins where the whole text begins
};

using PreTokenizer = std::function<std::vector<Piece>(std::vector<Piece>)>;

/// Makes a pre-tokenizer, which is never empty: null gives one that changes nothing. Throws Error
/// naming a kind that is not known.
PreTokenizer make_pre_tokenizer(const Json& part);

/// The options for marking words in SentencePiece's way.
struct Metaspace {
    std::string replacement = "\xE2\x96\x81";  ///< the mark that replaces a space: U+2581
    enum class Prepend { never, first, always } prepend = Prepend::always;
    bool split = true;
};
Metaspace read_metaspace(const Json& part);

}  // namespace vkf::text
