// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <algorithm>

#include "runtime/base/map_file.h"
#include "runtime/base/named_errors.h"
#include "runtime/base/paths.h"
#include "text/added_tokens.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/sentencepiece.h"
#include "text/token_decoder.h"
#include "text/unicode.h"

namespace vkf {

using namespace text;

struct Truncation {
    std::optional<std::size_t> longest;  ///< tokens in all
    bool left = false;                   ///< the beginning is cut off
};

namespace {

Truncation read_truncation(const Json& part) {
    if (part.is_null()) {
        return {};
    }
    return {whole_number<std::size_t>(part.at("max_length")),
            member_or(part, "direction", std::string("Right")) == "Left"};
}

/// What read() gives. JSON of another type than it expects is an error that names the part.
template <class Read>
auto reading(const char* part, const Read& read) {
    try {
        return read();
    } catch (const Json::exception& error) {
        throw Error(std::string("its ") + part + " cannot be read: " + error.what(), "tokenizer");
    }
}

template <class Make>
auto made_of(const Json& root, const char* name, const Make& make) {
    return reading(name, [&] { return make(part_of(root, name)); });
}

std::vector<AddedToken> added_of(const LongList& list) {
    std::vector<AddedToken> all;
    all.reserve(list.entries);
    for_each_object(list, [&](const Json& entry) { all.push_back(read_added_token(entry)); });
    return all;
}

/// The file itself, or a folder's tokenizer.json, or its tokenizer.model where it has no other.
std::filesystem::path file_of(const std::filesystem::path& path) {
    if (!is_folder(path)) {
        return path;
    }
    const std::filesystem::path json = path / "tokenizer.json";
    const std::filesystem::path model = path / "tokenizer.model";
    return !is_there(json) && is_there(model) ? model : json;
}

}  // namespace

struct Tokenizer::Parts {
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    std::unique_ptr<TokenModel> model;
    AddedTokens added;
    Affixes affixes;
    TokenDecoder decoder;
    Truncation truncation;
    std::int32_t size = 0;

    explicit Parts(const TokenizerJson& file)
        : Parts(file.rest, reading("model", [&] { return make_model(file); }),
                reading("added_tokens", [&] { return added_of(file.added_tokens); })) {}
    Parts(const Json& root, std::unique_ptr<TokenModel> words, std::vector<AddedToken> added_tokens)
        : normalizer(made_of(root, "normalizer", make_normalizer)),
          pre_tokenizer(made_of(root, "pre_tokenizer", make_pre_tokenizer)),
          model(std::move(words)),
          added(std::move(added_tokens), model->vocabulary(), normalizer),
          affixes(made_of(root, "post_processor", read_post_processor)),
          decoder(made_of(root, "decoder", make_token_decoder)),
          truncation(made_of(root, "truncation", read_truncation)),
          size(model->vocabulary().end()) {
        for (const AddedToken& token : added.all()) {
            size = std::max(size, token.id + 1);
        }
        for (const auto* ids : {&affixes.before, &affixes.after}) {
            for (const TokenId id : *ids) {
                size = std::max(size, id + 1);
            }
        }
    }

    std::optional<std::string_view> token(TokenId id) const {
        const AddedToken* a = added.find(id);
        return a != nullptr ? std::optional<std::string_view>(a->shown) : model->vocabulary().token(id);
    }

    /// What decoding makes text of: nothing for ids that are left out.
    std::optional<std::string_view> decoded(TokenId id, bool skip_special) const {
        const std::optional<std::string_view> shown = token(id);
        return shown && skip_special && added.is_special(*shown) ? std::nullopt : shown;
    }

    /// Normalizes and cuts what no added token took as it was given.
    void encode_part(std::string_view part, bool first, Growth& growth, std::vector<TokenId>& ids) const {
        const auto [text, keeps_front] = normalizer({std::string(part)});
        for (const Found& f : added.find(text, true)) {
            if (f.token != nullptr) {
                ids.push_back(f.token->id);
                continue;
            }
            const bool begins = first && keeps_front && f.text.data() == text.data();
            for (const Piece& word : pre_tokenizer({{std::string(f.text), begins}})) {
                growth.add(word.text.size());
                model->encode(word.text, word.first, ids);
            }
        }
    }

    /// Cuts to `most` ids, on the side that the file says.
    void cut(std::vector<TokenId>& ids, std::size_t most) const {
        if (ids.size() > most) {
            const auto cut = static_cast<std::ptrdiff_t>(ids.size() - most);
            truncation.left ? ids.erase(ids.begin(), ids.begin() + cut) : ids.erase(ids.end() - cut, ids.end());
        }
    }
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
    return naming(name, [&] { return Tokenizer(std::make_unique<const Parts>(cut_tokenizer(json))); });
}

Tokenizer::Tokenizer(const std::filesystem::path& path) {
    const std::filesystem::path file = file_of(path);
    const std::string content = file_text(file);
    if (file.extension() != ".model") {
        *this = parse(content, utf8_name(file));
        return;
    }
    naming(utf8_name(file), [&] {
        SentencePiece read = read_sentencepiece(content, file.parent_path());
        parts_ = std::make_unique<const Parts>(read.rest, std::move(read.model), std::move(read.added));
    });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool special, bool truncate) const {
    return encode_cut(text, special, truncate ? parts_->truncation.longest : std::nullopt);
}

std::vector<std::int32_t> Tokenizer::encode_within(std::string_view text, std::int64_t most, bool lower_case) const {
    if (most < 0) {
        throw Error("most = " + std::to_string(most) + " is negative", "tokenizer");
    }
    const auto ids = static_cast<std::size_t>(most);
    if (!lower_case || malformed_at(text) != std::string_view::npos) {  // which is refused
        return encode_cut(text, true, ids);
    }
    return encode_cut(text::lower_case(text), true, ids);
}

std::vector<std::int32_t> Tokenizer::encode_cut(std::string_view text, bool special,
                                                std::optional<std::size_t> most) const {
    if (const std::size_t at = malformed_at(text); at != std::string_view::npos) {
        throw Error("byte " + std::to_string(at) + " of the text is not UTF-8", "tokenizer");
    }
    const Affixes none;
    const Affixes& around = special ? parts_->affixes : none;
    std::vector<TokenId> ids;
    Growth growth(text.size());
    for (const Found& f : parts_->added.find(text, false)) {
        if (f.token != nullptr) {
            ids.push_back(f.token->id);
        } else {
            parts_->encode_part(f.text, f.text.data() == text.data(), growth, ids);
        }
    }
    if (most) {
        parts_->cut(ids, *most - std::min(*most, around.before.size() + around.after.size()));
    }
    ids.insert(ids.begin(), around.before.begin(), around.before.end());
    ids.insert(ids.end(), around.after.begin(), around.after.end());
    return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
    std::vector<std::string> tokens;
    for (const std::int32_t id : ids) {
        if (const std::optional<std::string_view> token = parts_->decoded(id, skip_special)) {
            tokens.emplace_back(*token);
        }
    }
    std::string text;
    for (const std::string& part : parts_->decoder(std::move(tokens))) {
        text += part;
    }
    return text;
}

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
    const AddedToken* added = parts_->added.find_content(token);
    return added != nullptr ? std::optional(added->id) : parts_->model->vocabulary().find(token);
}

std::string Tokenizer::token(std::int32_t id) const { return std::string(parts_->token(id).value_or("")); }

std::int32_t Tokenizer::size() const noexcept { return parts_->size; }

/// The text of the ids after the boundary. Bytes that came since may have undone the text before
/// it (three bytes that are no UTF-8 are three U+FFFD, where the first two were a character); then
/// it is what those ids are by themselves.
std::string TokenStream::added(const std::string& now) const {
    const std::string before = tokenizer_->decode(std::span(ids_).first(done_));
    return now.starts_with(before) ? now.substr(before.size()) : tokenizer_->decode(std::span(ids_).subspan(done_));
}

std::string TokenStream::push(std::int32_t id) {
    if (!tokenizer_->parts_->decoded(id, true)) {
        return {};  // and no text depends on it
    }
    ids_.push_back(id);
    constexpr std::size_t kMostHeld = 64;  // no character has so many tokens
    const std::string now = tokenizer_->decode(ids_);
    const bool many = ids_.size() - done_ >= kMostHeld;
    const bool whole = many || !now.ends_with("\xEF\xBF\xBD");
    std::string text = whole ? added(now) : std::string();
    if (text.empty() && !many) {
        return text;
    }
    // The ids that came last say how the next text begins (a space, or none), so they are kept.
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(done_));
    done_ = ids_.size();
    return text;
}

std::string TokenStream::finish() {
    std::string text = added(tokenizer_->decode(ids_));
    ids_.clear();
    done_ = 0;
    return text;
}

}  // namespace vkf
