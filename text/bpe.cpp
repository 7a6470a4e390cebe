// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: the characters of a word, of which the pair that was learnt first is merged
// until none is left.
#include <queue>

#include "text/model.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

struct Merge {
    std::uint64_t pair = 0;
    std::uint32_t rank = 0;
    TokenId id = 0;
};

std::uint64_t pair_key(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

/// Merges by their pair.
class Merges {
public:
    void reserve(std::size_t count) { merges_.reserve(count); }

    /// A pair that comes again takes the later rank.
    void add(const Merge& merge) {
        if (const std::uint32_t place = place_of(merge.pair); place != Places::kNone) {
            merges_[place] = merge;
            return;
        }
        merges_.push_back(merge);
        places_.add([this](std::uint32_t place) { return hash_of(merges_[place].pair); });
    }

    /// Null when there is none.
    const Merge* find(std::uint64_t pair) const {
        const std::uint32_t place = place_of(pair);
        return place == Places::kNone ? nullptr : &merges_[place];
    }

private:
    static std::uint64_t hash_of(std::uint64_t pair) { return pair ^ pair >> 29; }
    std::uint32_t place_of(std::uint64_t pair) const {
        return places_.find(hash_of(pair), [&](std::uint32_t place) { return merges_[place].pair == pair; });
    }

    std::vector<Merge> merges_;
    Places places_;
};

/// A list of symbols in which neighbours merge.
class Word {
public:
    explicit Word(std::vector<TokenId> ids) {
        const auto count = static_cast<std::int64_t>(ids.size());
        for (std::int64_t i = 0; i < count; ++i) {
            symbols_.push_back({ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, true});
        }
    }

    void merge(const Merges& merges) {
        merges_ = &merges;
        for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
            offer(static_cast<std::int64_t>(i));
        }
        while (!queue_.empty()) {
            const Candidate best = queue_.top();
            queue_.pop();
            apply(best);
        }
    }

    void append_to(std::vector<TokenId>& ids) const {
        for (const Symbol& s : symbols_) {
            if (s.alive) {
                ids.push_back(s.id);
            }
        }
    }

private:
    struct Symbol {
        TokenId id;
        std::int64_t previous, next;  ///< -1: none
        bool alive;
    };
    struct Candidate {
        std::uint32_t rank;
        std::int64_t at;
        TokenId id;
        bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
    };

    Symbol& symbol(std::int64_t i) { return symbols_[static_cast<std::size_t>(i)]; }

    const Merge* merge_at(std::int64_t i) {
        const Symbol& s = symbol(i);
        if (!s.alive || s.next < 0) {
            return nullptr;
        }
        return merges_->find(pair_key(s.id, symbol(s.next).id));
    }

    void offer(std::int64_t i) {
        if (const Merge* m = merge_at(i)) {
            queue_.push({m->rank, i, m->id});
        }
    }

    void apply(const Candidate& c) {
        const Merge* now = merge_at(c.at);
        if (now == nullptr || now->id != c.id) {  // its symbols have merged otherwise since
            return;
        }
        Symbol& left = symbol(c.at);
        Symbol& right = symbol(left.next);
        right.alive = false;
        left.id = c.id;
        left.next = right.next;
        if (left.next >= 0) {
            symbol(left.next).previous = c.at;
            offer(c.at);
        }
        if (left.previous >= 0) {
            offer(left.previous);
        }
    }

    std::vector<Symbol> symbols_;
    std::priority_queue<Candidate> queue_;
    const Merges* merges_ = nullptr;
};

class Bpe final : public TokenModel {
public:
    Bpe(const Json& part, const LongList& vocab, const LongList& merges)
        : vocabulary_(vocab),
          prefix_(member_or(part, "continuing_subword_prefix", std::string())),
          suffix_(member_or(part, "end_of_word_suffix", std::string())),
          fuse_unknown_(member_or(part, "fuse_unk", false)),
          byte_fallback_(member_or(part, "byte_fallback", false)),
          ignore_merges_(member_or(part, "ignore_merges", false)),
          bytes_(vocabulary_) {
        if (member_or(part, "dropout", 0.0) != 0.0) {
            refuse("BPE with", "dropout");
        }
        if (const std::string unknown = member_or(part, "unk_token", std::string()); !unknown.empty()) {
            unknown_ = must_find(unknown, "unk_token");
        }
        read_merges(merges);
    }

    const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

    void encode(const std::string& word, bool, std::vector<TokenId>& ids) const override {
        if (const auto whole = ignore_merges_ ? vocabulary_.find(word) : std::nullopt) {
            ids.push_back(*whole);
            return;
        }
        Word symbols(characters(word));
        symbols.merge(merges_);
        symbols.append_to(ids);
    }

private:
    TokenId must_find(const std::string& token, const char* what) const {
        const auto id = vocabulary_.find(token);
        if (!id) {
            throw Error(std::string(what) + " \"" + token + "\" is not in the vocabulary", "tokenizer");
        }
        return *id;
    }

    /// Reads merges, "left right" or ["left", "right"], the first learnt first.
    void read_merges(const LongList& list) {
        std::uint32_t rank = 0;
        merges_.reserve(list.entries);
        for_each_entry(list, [&](ListEntry& entry) {
            std::vector<std::string>& sides = entry.texts;
            if (sides.size() == 1) {
                const std::size_t space = sides[0].find(' ');
                if (space == std::string::npos || sides[0].find(' ', space + 1) != std::string::npos) {
                    throw Error("merge \"" + sides[0] + "\" is not two tokens", "tokenizer");
                }
                sides.push_back(sides[0].substr(space + 1));
                sides[0].resize(space);
            }
            if (sides.size() != 2 || !entry.number.is_null()) {
                throw Error("a merge is not two tokens", "tokenizer");
            }
            const std::string& right = sides[1];
            const std::string tail = right.starts_with(prefix_) ? right.substr(prefix_.size()) : right;
            const std::uint64_t pair = pair_key(must_find(sides[0], "merge of"), must_find(right, "merge of"));
            merges_.add({pair, rank++, must_find(sides[0] + tail, "merged")});
        });
    }

    std::vector<TokenId> characters(const std::string& word) const {
        std::vector<TokenId> ids;
        // characters before this one that became one unknown token, not written yet
        bool unknown = false;
        std::size_t at = 0;
        for_each_character(word, [&](std::string_view character, char32_t) {
            std::string text(at == 0 ? "" : prefix_);
            at += character.size();
            text += character;
            text += at == word.size() ? suffix_ : "";
            if (const auto id = vocabulary_.find(text)) {
                if (unknown) {
                    ids.push_back(*unknown_);
                    unknown = false;
                }
                ids.push_back(*id);
            } else if (!(byte_fallback_ && bytes_.encode(text, ids)) && unknown_) {
                if (unknown && !fuse_unknown_) {
                    ids.push_back(*unknown_);
                }
                unknown = true;
            }
        });
        if (unknown) {
            ids.push_back(*unknown_);
        }
        return ids;
    }

    Vocabulary vocabulary_;
    Merges merges_;
    std::string prefix_, suffix_;
    std::optional<TokenId> unknown_;
    bool fuse_unknown_, byte_fallback_, ignore_merges_;
    ByteTokens bytes_;
};

}  // namespace

std::unique_ptr<TokenModel> make_bpe(const TokenizerJson& file) {
    return std::make_unique<Bpe>(file.rest.at("model"), file.vocab, file.merges);
}

}  // namespace vkf::text
