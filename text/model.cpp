// SPDX-License-Identifier: Apache-2.0
#include "text/model.h"

#include <algorithm>
#include <limits>

#include "text/prefixes.h"
#include "text/unicode.h"

namespace vkf::text {

Vocabulary::Vocabulary(const LongList& vocab) {
    tokens_.reserve(vocab.entries);
    for_each_entry(vocab, [&](ListEntry& entry) {
        if (entry.texts.size() != 1) {
            throw Error("the vocabulary has an entry that is no token with its id", "tokenizer");
        }
        add(entry.texts[0], whole_number<std::int64_t>(entry.number));
    });
}

void Vocabulary::add(std::string_view token, std::int64_t id) {
    if (id < 0 || id >= std::numeric_limits<TokenId>::max()) {
        throw Error("token \"" + std::string(token) + "\" has the id " + std::to_string(id), "tokenizer");
    }
    if (place_of(token) != Places::kNone) {
        throw Error("token \"" + std::string(token) + "\" is there twice", "tokenizer");
    }
    if (place_of(static_cast<TokenId>(id)) != Places::kNone) {
        throw Error("two tokens have the id " + std::to_string(id), "tokenizer");
    }
    tokens_.push_back({texts_.size(), static_cast<std::uint32_t>(token.size()), static_cast<TokenId>(id)});
    texts_ += token;
    by_text_.add([this](std::uint32_t place) { return hash_of(text_of(place)); });
    by_id_.add([this](std::uint32_t place) { return hash_of(tokens_[place].id); });
    end_ = std::max(end_, tokens_.back().id + 1);
    longest_ = std::max(longest_, token.size());
}

std::string_view Vocabulary::text_of(std::uint32_t place) const {
    return std::string_view(texts_).substr(tokens_[place].begin, tokens_[place].bytes);
}

std::uint32_t Vocabulary::place_of(std::string_view token) const {
    return by_text_.find(hash_of(token), [&](std::uint32_t place) { return text_of(place) == token; });
}

std::uint32_t Vocabulary::place_of(TokenId id) const {
    if (const auto place = static_cast<std::uint32_t>(id); place < tokens_.size() && tokens_[place].id == id) {
        return place;  // as most files number them
    }
    return by_id_.find(hash_of(id), [&](std::uint32_t place) { return tokens_[place].id == id; });
}

std::optional<TokenId> Vocabulary::find(std::string_view token) const {
    const std::uint32_t place = place_of(token);
    return place == Places::kNone ? std::nullopt : std::optional(tokens_[place].id);
}

std::vector<TokenId> Vocabulary::ids() const {
    std::vector<TokenId> all;
    all.reserve(tokens_.size());
    for (const Token& t : tokens_) {
        all.push_back(t.id);
    }
    return all;
}

std::optional<std::string_view> Vocabulary::token(TokenId id) const {
    const std::uint32_t place = place_of(id);
    return place == Places::kNone ? std::nullopt : std::optional(text_of(place));
}

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    for (unsigned byte = 0; byte < 256; ++byte) {
        const std::string name{'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
        ids_[byte] = vocabulary.find(name);
    }
}

bool ByteTokens::encode(std::string_view text, std::vector<TokenId>& ids) const {
    std::vector<TokenId> all;
    for (const char c : text) {
        const auto id = ids_[static_cast<unsigned char>(c)];
        if (!id) {
            return false;
        }
        all.push_back(*id);
    }
    ids.insert(ids.end(), all.begin(), all.end());
    return true;
}

namespace {

TokenId unknown_of(const Json& part, const Vocabulary& vocabulary) {
    const std::string token = part.at("unk_token").get<std::string>();
    const auto id = vocabulary.find(token);
    if (!id) {
        throw Error("unk_token \"" + token + "\" is not in the vocabulary", "tokenizer");
    }
    return *id;
}

/// The longest token at the front, then the longest that goes on, and so on; the whole word is
/// unknown where that fails.
class WordPiece final : public TokenModel {
public:
    WordPiece(const Json& part, const LongList& vocab)
        : vocabulary_(vocab),
          prefix_(member_or(part, "continuing_subword_prefix", std::string("##"))),
          longest_(member_or(part, "max_input_chars_per_word", std::size_t{100})),
          unknown_(unknown_of(part, vocabulary_)) {
        prefixes_.sort(vocabulary_.ids(), texts_of(vocabulary_));
    }

    const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

    void encode(const std::string& word, bool, std::vector<TokenId>& ids) const override {
        std::vector<TokenId> found;
        std::size_t count = 0;
        for_each_character(word, [&](std::string_view, char32_t) { ++count; });
        std::size_t at = 0;
        while (count <= longest_ && at < word.size()) {
            const auto [id, end] = longest_at(word, at);
            if (end == at) {
                break;
            }
            found.push_back(id);
            at = end;
        }
        if (at < word.size()) {
            ids.push_back(unknown_);
        } else {
            ids.insert(ids.end(), found.begin(), found.end());
        }
    }

private:
    /// The token, and where it ends: `at`, where there is none.
    std::pair<TokenId, std::size_t> longest_at(const std::string& word, std::size_t at) const {
        const std::size_t before = at == 0 ? 0 : prefix_.size();
        const std::string text = (at == 0 ? "" : prefix_) + word.substr(at, vocabulary_.longest());
        std::pair<TokenId, std::size_t> found{0, at};
        prefixes_.for_each(text, texts_of(vocabulary_), [&](std::size_t bytes, TokenId id) {
            found = bytes > before ? std::pair(id, at + bytes - before) : found;
        });
        return found;
    }

    Vocabulary vocabulary_;
    Prefixes prefixes_;
    std::string prefix_;
    std::size_t longest_;
    TokenId unknown_;
};

class WordLevel final : public TokenModel {
public:
    WordLevel(const Json& part, const LongList& vocab) : vocabulary_(vocab), unknown_(unknown_of(part, vocabulary_)) {}

    const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

    void encode(const std::string& word, bool, std::vector<TokenId>& ids) const override {
        ids.push_back(vocabulary_.find(word).value_or(unknown_));
    }

private:
    Vocabulary vocabulary_;
    TokenId unknown_;
};

/// Gives the type of a model, which older files do not name.
std::string model_type(const Json& part) {
    if (const std::string type = member_or(part, "type", std::string()); !type.empty()) {
        return type;
    }
    if (part.at("vocab").is_array()) {
        return "Unigram";
    }
    return part.contains("merges") ? "BPE" : part.contains("max_input_chars_per_word") ? "WordPiece" : "without a type";
}

}  // namespace

std::unique_ptr<TokenModel> make_model(const TokenizerJson& file) {
    const Json& part = file.rest.at("model");
    const std::string type = model_type(part);
    if (type == "BPE") {
        return make_bpe(file);
    }
    if (type == "Unigram") {
        return make_unigram(file);
    }
    if (type == "WordPiece") {
        return std::make_unique<WordPiece>(part, file.vocab);
    }
    if (type == "WordLevel") {
        return std::make_unique<WordLevel>(part, file.vocab);
    }
    refuse("model", type);
}

}  // namespace vkf::text
