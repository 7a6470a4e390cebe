// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in a text before it is cut into words: tokenizer.json's "added_tokens".
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/model.h"
#include "text/normalizer.h"
#include "text/prefixes.h"

namespace vkf::text {

struct AddedToken {
    TokenId id = 0;
    std::string content;
    /// the text it decodes to: the content, normalized where it is sought so
    std::string shown;
    bool single_word = false;  ///< only where no word goes on before or after it
    bool lstrip = false;       ///< takes the space before it along
    bool rstrip = false;       ///< and the space after it
    bool normalized = false;   ///< sought in the normalized text
    bool special = false;      ///< left out when decoding without special tokens (its content)
    /// the file does not say "normalized", which is then what `special` is not
    bool normalized_by_special = false;
};

/// An entry of "added_tokens".
AddedToken read_added_token(const Json& entry);

/// The same of an entry whose id stands elsewhere.
AddedToken read_added_token(const Json& entry, TokenId id);

/// A part of a text: a token that was found, or what is between.
struct Found {
    std::string_view text;
    const AddedToken* token = nullptr;
};

class AddedTokens {
public:
    AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizer& normalizer);

    /// The tokens sought in a text as it was given (`normalized` false) or after the normalizer,
    /// leftmost and longest first. Parts are in order; those without a token are not empty. A part
    /// begins before the end of the last where that took along space with a token in it.
    std::vector<Found> find(std::string_view text, bool normalized) const;
    /// Null when there is none of that id, or content.
    const AddedToken* find(TokenId id) const;
    const AddedToken* find_content(std::string_view content) const;
    /// True where a special token has this content; another token may be shown as it.
    bool is_special(std::string_view shown) const { return special_.find(shown) != special_.end(); }
    std::span<const AddedToken> all() const noexcept { return tokens_; }

private:
    const AddedToken* longest_at(std::string_view text, bool normalized) const;
    auto shown_of() const {
        return [this](std::int32_t place) { return std::string_view(tokens_[static_cast<std::size_t>(place)].shown); };
    }
    bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) const;

    std::vector<AddedToken> tokens_;
    std::unordered_map<TokenId, std::size_t> by_id_;
    std::set<std::string, std::less<>> special_;
    Prefixes sought_[2];  ///< places in tokens_, [normalized]
    Finder word_;
};

}  // namespace vkf::text
