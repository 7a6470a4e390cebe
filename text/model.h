// SPDX-License-Identifier: Apache-2.0
// From words to tokens: tokenizer.json's "model".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/json.h"

namespace vkf::text {

using TokenId = std::int32_t;

/// Tokens by text and by id.
class Vocabulary {
public:
    Vocabulary() = default;
    /// Takes the tokens of {"token": id, ...}.
    explicit Vocabulary(const Json& vocab);

    /// Throws Error where the token or the id is there already.
    void add(const std::string& token, std::int64_t id);
    std::optional<TokenId> find(std::string_view token) const;
    /// Null when there is no such id.
    const std::string* token(TokenId id) const;
    std::size_t size() const noexcept { return ids_.size(); }
    /// Ids are below this.
    TokenId end() const noexcept { return end_; }

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>{}(s); }
    };
    std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
    std::unordered_map<TokenId, const std::string*> tokens_;
    TokenId end_ = 0;
};

class TokenModel {
public:
    virtual ~TokenModel() = default;
    /// Appends the tokens of one word, which is not empty. `first`: the whole text begins with it.
    virtual void encode(const std::string& word, bool first, std::vector<TokenId>& ids) const = 0;
    virtual const Vocabulary& vocabulary() const noexcept = 0;
};

/// Byte-pair encoding (Sennrich et al. 2016), Unigram (Kudo 2018), WordPiece (Schuster and Nakajima
/// 2012) or whole words. Throws Error naming another kind, and what contradicts itself.
std::unique_ptr<TokenModel> make_model(const Json& part);
std::unique_ptr<TokenModel> make_bpe(const Json& part);
std::unique_ptr<TokenModel> make_unigram(const Json& part);

/// The tokens that stand for single bytes, named <0x00> to <0xFF>.
class ByteTokens {
public:
    explicit ByteTokens(const Vocabulary& vocabulary);
    /// Appends the bytes of the text; false, and nothing is appended, where one has no token.
    bool encode(std::string_view text, std::vector<TokenId>& ids) const;

private:
    std::array<std::optional<TokenId>, 256> ids_;
};

}  // namespace vkf::text
