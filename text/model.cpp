// SPDX-License-Identifier: Apache-2.0
#include "text/model.h"

#include <algorithm>
#include <limits>

#include "text/unicode.h"

namespace vkf::text {

Vocabulary::Vocabulary(const Json& vocab) {
    ids_.reserve(vocab.size());
    for (const auto& [token, id] : vocab.items()) {
        add(token, whole_number<std::int64_t>(id));
    }
}

void Vocabulary::add(const std::string& token, std::int64_t id) {
    if (id < 0 || id >= std::numeric_limits<TokenId>::max()) {
        throw Error("token \"" + token + "\" has the id " + std::to_string(id), "tokenizer");
    }
    const auto [at, is_new] = ids_.emplace(token, static_cast<TokenId>(id));
    if (!is_new) {
        throw Error("token \"" + token + "\" is there twice", "tokenizer");
    }
    if (!tokens_.emplace(at->second, &at->first).second) {
        throw Error("two tokens have the id " + std::to_string(id), "tokenizer");
    }
    end_ = std::max(end_, at->second + 1);
}

std::optional<TokenId> Vocabulary::find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::token(TokenId id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? nullptr : found->second;
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
    explicit WordPiece(const Json& part)
        : vocabulary_(part.at("vocab")),
          prefix_(member_or(part, "continuing_subword_prefix", std::string("##"))),
          longest_(member_or(part, "max_input_chars_per_word", std::size_t{100})),
          unknown_(unknown_of(part, vocabulary_)) {}

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
    std::pair<TokenId, std::size_t> longest_at(const std::string& word, std::size_t at) const {
        std::string text = (at == 0 ? "" : prefix_) + word.substr(at);
        for (std::size_t end = word.size(); end > at;) {
            if (const auto id = vocabulary_.find(text)) {
                return {*id, end};
            }
            do {  // one character less
                text.pop_back();
                --end;
            } while (end > at && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80);
        }
        return {0, at};
    }

    Vocabulary vocabulary_;
    std::string prefix_;
    std::size_t longest_;
    TokenId unknown_;
};

class WordLevel final : public TokenModel {
public:
    explicit WordLevel(const Json& part) : vocabulary_(part.at("vocab")), unknown_(unknown_of(part, vocabulary_)) {}

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

std::unique_ptr<TokenModel> make_model(const Json& part) {
    const std::string type = model_type(part);
    if (type == "BPE") {
        return make_bpe(part);
    }
    if (type == "Unigram") {
        return make_unigram(part);
    }
    if (type == "WordPiece") {
        return std::make_unique<WordPiece>(part);
    }
    if (type == "WordLevel") {
        return std::make_unique<WordLevel>(part);
    }
    refuse("model", type);
}

}  // namespace vkf::text
