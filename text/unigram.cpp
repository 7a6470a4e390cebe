// SPDX-License-Identifier: Apache-2.0
// Unigram language model (Kudo 2018): the cut of a word into tokens whose log probabilities have
// the largest sum (Viterbi).
#include <algorithm>

#include "text/model.h"
#include "text/prefixes.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

class Unigram final : public TokenModel {
public:
    Unigram(const Json& part, const LongList& vocab) : byte_fallback_(member_or(part, "byte_fallback", false)) {
        scores_.reserve(vocab.entries);
        for_each_entry(vocab, [&](ListEntry& entry) {  // ["token", log probability]
            if (entry.texts.size() != 1 || entry.number.is_null()) {
                throw Error("the vocabulary has an entry that is no token with its log probability", "tokenizer");
            }
            vocabulary_.add(entry.texts[0], static_cast<std::int64_t>(scores_.size()));
            scores_.push_back(entry.number.get<double>());
        });
        if (scores_.empty()) {
            throw Error("the vocabulary is empty", "tokenizer");
        }
        prefixes_.sort(vocabulary_.ids(), texts_of(vocabulary_));
        bytes_ = ByteTokens(vocabulary_);
        // SentencePiece's penalty
        unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - 10;
        if (const Json& unknown = part_of(part, "unk_id"); !unknown.is_null()) {
            const auto id = whole_number<std::int64_t>(unknown);
            if (id < 0 || id >= static_cast<std::int64_t>(scores_.size())) {
                throw Error("unk_id " + std::to_string(id) + " is not in the vocabulary", "tokenizer");
            }
            unknown_ = static_cast<TokenId>(id);
        }
    }

    const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

    void encode(const std::string& word, bool, std::vector<TokenId>& ids) const override {
        for (const std::string_view part : cut(word, best_ends(word))) {
            if (const auto id = vocabulary_.find(part)) {
                ids.push_back(*id);
            } else if (!(byte_fallback_ && bytes_.encode(part, ids))) {
                if (unknown_ < 0) {
                    throw Error("\"" + std::string(part) + "\" is not in the vocabulary, and there is no unk_id",
                                "tokenizer");
                }
                ids.push_back(unknown_);
            }
        }
    }

private:
    /// The last token of the best cut of the text that ends at a byte.
    struct End {
        double score = 0;
        std::size_t begin = kNone;
        TokenId id = 0;
    };
    static constexpr std::size_t kNone = std::string::npos;

    /// [byte] for every place between characters that a cut reaches. A character that is no token
    /// is an unknown one.
    std::vector<End> best_ends(std::string_view word) const {
        std::vector<End> ends(word.size() + 1);
        for (std::size_t at = 0; at < word.size();) {
            const std::string_view rest = word.substr(at);
            const std::size_t character = character_bytes(rest);
            bool known = false;
            const auto offer = [&](std::size_t bytes, TokenId id, double score) {
                End& end = ends[at + bytes];
                score += ends[at].score;
                if (end.begin == kNone || score > end.score) {
                    end = {score, at, id};
                }
            };
            prefixes_.for_each(rest, texts_of(vocabulary_), [&](std::size_t bytes, TokenId id) {
                offer(bytes, id, scores_[static_cast<std::size_t>(id)]);
                known = known || bytes == character;
            });
            if (!known) {
                offer(character, unknown_, unknown_score_);
            }
            at += character;
        }
        return ends;
    }

    /// The parts in order; neighbours that are unknown are one.
    std::vector<std::string_view> cut(std::string_view word, const std::vector<End>& ends) const {
        std::vector<std::string_view> parts;
        bool unknown = false;
        for (std::size_t end = word.size(); end > 0;) {
            const End& last = ends[end];
            const bool joins = unknown && last.id == unknown_;
            const std::size_t bytes = end - last.begin + (joins ? parts.back().size() : 0);
            if (joins) {
                parts.pop_back();
            }
            parts.push_back(word.substr(last.begin, bytes));
            unknown = last.id == unknown_;
            end = last.begin;
        }
        std::reverse(parts.begin(), parts.end());
        return parts;
    }

    Vocabulary vocabulary_;
    std::vector<double> scores_;
    Prefixes prefixes_;
    ByteTokens bytes_{vocabulary_};
    double unknown_score_ = 0;
    TokenId unknown_ = -1;  ///< below 0: there is none
    bool byte_fallback_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(const TokenizerJson& file) {
    return std::make_unique<Unigram>(file.rest.at("model"), file.vocab);
}

}  // namespace vkf::text
