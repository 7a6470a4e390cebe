// SPDX-License-Identifier: Apache-2.0
// From words to tokens: tokenizer.json's "model".
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_lists.h"

namespace vkf::text {

using TokenId = std::int32_t;

inline std::uint64_t hash_of(std::string_view text) noexcept { return std::hash<std::string_view>{}(text); }
inline std::uint64_t hash_of(TokenId id) noexcept { return static_cast<std::uint64_t>(id); }

/// Finds places in a list by what lies there: open addressing, four to eight bytes a place.
class Places {
public:
    static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

    /// The place for which same(place) is true, of those that were added with this hash.
    template <class Same>
    std::uint32_t find(std::uint64_t hash, Same same) const {
        for (std::size_t slot = first(hash); !slots_.empty() && slots_[slot] != kNone; slot = (slot + 1) & mask()) {
            if (same(slots_[slot])) {
                return slots_[slot];
            }
        }
        return kNone;
    }

    /// Adds the next place; hash_of(place) gives the hash of each so far.
    template <class Hash>
    void add(Hash hash_of) {
        if (8 * std::size_t{count_ + 1} > 7 * slots_.size()) {
            slots_.assign(std::max<std::size_t>(16, 2 * slots_.size()), kNone);
            for (std::uint32_t place = 0; place < count_; ++place) {
                put(hash_of(place), place);
            }
        }
        put(hash_of(count_), count_);
        ++count_;
    }

private:
    std::size_t mask() const { return slots_.size() - 1; }
    std::size_t first(std::uint64_t hash) const {
        return slots_.empty() ? 0 : static_cast<std::size_t>((hash * 0x9E3779B97F4A7C15u) >> 32) & mask();
    }
    void put(std::uint64_t hash, std::uint32_t place) {
        std::size_t slot = first(hash);
        while (slots_[slot] != kNone) {
            slot = (slot + 1) & mask();
        }
        slots_[slot] = place;
    }

    std::vector<std::uint32_t> slots_;  ///< a power of two
    std::uint32_t count_ = 0;
};

/// Tokens by text and by id, which are hundreds of thousands: their texts lie behind each other.
class Vocabulary {
public:
    Vocabulary() = default;
    /// Takes the tokens of {"token": id, ...}.
    explicit Vocabulary(const LongList& vocab);

    /// Throws Error where the token or the id is there already.
    void add(std::string_view token, std::int64_t id);
    std::optional<TokenId> find(std::string_view token) const;
    /// Nothing when there is no such id. The text lies here until the next token is added.
    std::optional<std::string_view> token(TokenId id) const;
    std::size_t size() const noexcept { return tokens_.size(); }
    /// In the order in which they were added.
    std::vector<TokenId> ids() const;
    /// Ids are below this.
    TokenId end() const noexcept { return end_; }
    /// Bytes of the longest token.
    std::size_t longest() const noexcept { return longest_; }

private:
    struct Token {
        std::uint64_t begin;
        std::uint32_t bytes;
        TokenId id;
    };
    std::string_view text_of(std::uint32_t place) const;
    std::uint32_t place_of(std::string_view token) const;
    std::uint32_t place_of(TokenId id) const;

    std::string texts_;
    std::vector<Token> tokens_;
    Places by_text_, by_id_;
    TokenId end_ = 0;
    std::size_t longest_ = 0;
};

/// Gives the text of an id that the vocabulary has.
inline auto texts_of(const Vocabulary& vocabulary) {
    return [&vocabulary](TokenId id) { return *vocabulary.token(id); };
}

class TokenModel {
public:
    virtual ~TokenModel() = default;
    /// Appends the tokens of one word, which is not empty. `first`: the whole text begins with it.
    virtual void encode(const std::string& word, bool first, std::vector<TokenId>& ids) const = 0;
    virtual const Vocabulary& vocabulary() const noexcept = 0;
};

/// Byte-pair encoding (Sennrich et al. 2016), Unigram (Kudo 2018), WordPiece (Schuster and Nakajima
/// 2012) or whole words: the file's "model". Throws Error naming another kind, and what contradicts
/// itself.
std::unique_ptr<TokenModel> make_model(const TokenizerJson& file);
std::unique_ptr<TokenModel> make_bpe(const TokenizerJson& file);
std::unique_ptr<TokenModel> make_unigram(const TokenizerJson& file);

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
