// SPDX-License-Identifier: Apache-2.0
#include "text/sentencepiece.h"

#ifndef VKFORMER_SENTENCEPIECE

namespace vkf::text {

SentencePiece read_sentencepiece(std::string_view, const std::filesystem::path&) {
    throw Error(
        "it is a SentencePiece model, and this build has no libsentencepiece (Debian and Ubuntu: "
        "libsentencepiece-dev); "
        "a tokenizer.json beside it would be read",
        "tokenizer");
}

}  // namespace vkf::text

#else

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "runtime/base/map_file.h"
#include "runtime/base/paths.h"
#include "text/precompiled.h"

namespace vkf::text {

namespace {

using Processor = sentencepiece::SentencePieceProcessor;

constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581

/// Throws where the status is not OK. It is the library's own, or Abseil's in newer versions.
template <class Status>
void require(const Status& status) {
    if (!status.ok()) {
        throw Error(status.ToString(), "libsentencepiece");
    }
}

/// The fields of a protocol buffer that hold bytes; throws where it is none.
class Fields {
public:
    explicit Fields(std::string_view message) : rest_(message) {}

    /// The next such field: its number and its bytes; false at the end.
    bool next(std::uint64_t& number, std::string_view& bytes) {
        while (!rest_.empty()) {
            const std::uint64_t tag = varint();
            if (tag > 0xFFFFFFFFu) {  // which protobuf cuts to 32 bits
                throw Error("it has a field's tag of more than 32 bits", "libsentencepiece");
            }
            number = tag >> 3;
            switch (tag & 7) {
                case 0: varint(); break;
                case 1: take(8); break;
                case 2: bytes = take(varint()); return true;
                case 5: take(4); break;
                default: throw Error("it is not a protocol buffer", "libsentencepiece");
            }
        }
        return false;
    }

private:
    std::string_view take(std::uint64_t count) {
        if (count > rest_.size()) {
            throw Error("it is cut: " + std::to_string(count) + " bytes are wanted where " +
                            std::to_string(rest_.size()) + " are left",
                        "libsentencepiece");
        }
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1)[0]);
            value |= std::uint64_t{byte & 0x7Fu} << shift;
            if (byte < 0x80) {
                return value;
            }
        }
        throw Error("it has a number of more than 64 bits", "libsentencepiece");
    }

    std::string_view rest_;
};

/// What libsentencepiece takes unchecked: ModelProto's pieces (1), for each byte of which (1) it
/// calls itself, and the tables of replacements that it walks through, of normalizer_spec (3) and
/// denormalizer_spec (5) each the precompiled_charsmap (2).
void check_model(std::string_view content) {
    constexpr std::size_t kLongestPiece = 1024, kMostPieces = std::size_t{1} << 19;
    std::uint64_t number = 0, inner = 0;
    std::string_view message, bytes;
    std::size_t pieces = 0;
    std::array<std::string_view, 2> last;  // a field that comes again counts
    for (Fields model(content); model.next(number, message);) {
        if (number != 1 && number != 3 && number != 5) {
            continue;
        }
        for (Fields fields(message); fields.next(inner, bytes);) {
            if (number == 1 && inner == 1 && bytes.size() > kLongestPiece) {
                throw Error("it has a piece of " + std::to_string(bytes.size()) + " bytes, of which at most " +
                                std::to_string(kLongestPiece) + " are read",
                            "libsentencepiece");
            }
            if (number != 1 && inner == 2) {
                last[number == 5] = bytes;
            }
        }
        pieces += number == 1 ? 1 : 0;
        if (pieces > kMostPieces) {
            throw Error("it has more than " + std::to_string(kMostPieces) + " pieces", "libsentencepiece");
        }
    }
    for (const std::string_view table : last) {
        check_charsmap(table);
    }
}

std::unique_ptr<Processor> load(std::string_view content) {
    auto processor = std::make_unique<Processor>();
    require(processor->LoadFromSerializedProto(content));
    return processor;
}

class SentencePieceModel final : public TokenModel {
public:
    /// `prefix_inside`: a space is put before a part of a text that follows an added token too, if
    /// the model puts it before a text.
    SentencePieceModel(std::string_view content, bool prefix, bool prefix_inside) : whole_(load(content)) {
        for (int id = 0; id < whole_->GetPieceSize(); ++id) {
            vocabulary_.add(std::string(whole_->IdToPiece(id)), id);
        }
        const std::string probe = pieces_of("x");
        if (probe.ends_with(kSpace)) {
            refuse("a SentencePiece model with", "treat_whitespace_as_suffix");
        }
        prefix_ = prefix && probe.starts_with(kSpace);
        if (!prefix || !prefix_inside) {
            // Protocol buffers merge a message that comes twice:
            // ModelProto.normalizer_spec.add_dummy_prefix = false.
            inside_ = load(std::string(content) + std::string("\x1A\x02\x18\x00", 4));
            whole_ = prefix ? std::move(whole_) : load(std::string(content) + std::string("\x1A\x02\x18\x00", 4));
        }
    }

    const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

    void encode(const std::string& word, bool first, std::vector<TokenId>& ids) const override {
        std::vector<int> found;
        require((first || inside_ == nullptr ? whole_ : inside_)->Encode(word, &found));
        ids.insert(ids.end(), found.begin(), found.end());
    }

    /// True where texts get a space before their first word.
    bool prefix() const noexcept { return prefix_; }
    const Processor& processor() const noexcept { return *whole_; }

private:
    std::string pieces_of(const char* text) const {
        std::vector<std::string> pieces;
        require(whole_->Encode(text, &pieces));
        std::string all;
        for (const std::string& p : pieces) {
            all += p;
        }
        return all;
    }

    Vocabulary vocabulary_;
    std::unique_ptr<Processor> whole_;
    /// the processor for parts that no text begins with; null: whole_
    std::unique_ptr<Processor> inside_;
    bool prefix_ = false;
};

/// An object in a file beside the model; empty where there is none.
OwnedJson read_beside(const std::filesystem::path& folder, const char* name) {
    const std::filesystem::path file = folder / name;
    if (!is_there(file)) {
        return parse_json("{}");
    }
    return read_object(file);
}

/// The settings that a folder has for its tokenizer.
class Settings {
public:
    explicit Settings(const std::filesystem::path& folder)
        : config_(read_beside(folder, "tokenizer_config.json")),
          special_(read_beside(folder, "special_tokens_map.json")),
          added_(read_beside(folder, "added_tokens.json")) {
        // Others number the tokens otherwise than the model.
        static constexpr std::array kClasses{"",
                                             "LlamaTokenizer",
                                             "LlamaTokenizerFast",
                                             "CodeLlamaTokenizer",
                                             "CodeLlamaTokenizerFast",
                                             "GemmaTokenizer",
                                             "GemmaTokenizerFast",
                                             "PreTrainedTokenizerFast",
                                             "TokenizersBackend"};
        const std::string kind = member_or(config_, "tokenizer_class", std::string());
        if (std::find(kClasses.begin(), kClasses.end(), kind) == kClasses.end()) {
            refuse("tokenizer_class", kind + " with a SentencePiece model");
        }
    }

    bool flag(const char* name, bool otherwise) const { return member_or(config_, name, otherwise); }

    /// The text of "bos_token", ...; nothing where the folder does not name it, empty where it says
    /// that there is none.
    std::optional<std::string> named(const char* name) const {
        for (const Json* file : {&config_, &special_}) {
            if (const auto found = file->find(name); found != file->end()) {
                return found->is_null() ? std::string() : content_of(*found);
            }
        }
        return std::nullopt;
    }

    std::vector<AddedToken> added_tokens() const {
        std::vector<AddedToken> all;
        TokenId number = 0;
        for (const auto& [id, token] : part_of(config_, "added_tokens_decoder").items()) {
            const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
            if (error != std::errc() || end != id.data() + id.size() || !token.is_object()) {
                throw Error("added_tokens_decoder: \"" + id + "\" is not a token's id, or has no token",
                            "tokenizer_config.json");
            }
            all.push_back(read_added_token(token, checked_token_id(number)));
        }
        for (const auto& [content, id] : added_.items()) {  // as older versions wrote it
            AddedToken& token = all.emplace_back();
            token.id = token_id(id);
            token.content = content;
            token.normalized = token.normalized_by_special = true;
        }
        return all;
    }

    std::vector<std::string> additional() const {
        std::vector<std::string> all;
        for (const Json* file : {&config_, &special_}) {
            for (const Json& token : part_of(*file, "additional_special_tokens")) {
                all.push_back(content_of(token));
            }
        }
        return all;
    }

private:
    static std::string content_of(const Json& token) {
        return (token.is_object() ? token.at("content") : token).get<std::string>();
    }

    OwnedJson config_, special_, added_;
};

/// The folder's added tokens and its special ones, each once.
class TokenList {
public:
    explicit TokenList(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

    void add(AddedToken token) {
        if (places_.emplace(token.content, list_.size()).second) {
            list_.push_back(std::move(token));
        }
    }

    void add_special(const std::string& content) {
        if (const auto known = places_.find(content); known != places_.end()) {
            AddedToken& token = list_[known->second];
            token.special = true;
            token.normalized = token.normalized && !token.normalized_by_special;
        } else if (const auto id = vocabulary_.find(content)) {
            AddedToken token;
            token.id = *id;
            token.content = content;
            token.special = token.normalized_by_special = true;
            add(std::move(token));
        }
    }

    std::optional<TokenId> find(const std::string& content) const {
        const auto found = places_.find(content);
        return found == places_.end() ? std::nullopt : std::optional(list_[found->second].id);
    }

    std::vector<AddedToken> take() { return std::move(list_); }

private:
    const Vocabulary& vocabulary_;
    std::unordered_map<std::string, std::size_t> places_;
    std::vector<AddedToken> list_;
};

// Both write into what holds them: a part by itself is let go of by nlohmann, which needs memory.

void write_post_processor(Json& part, const Settings& settings, const TokenList& tokens,
                          const std::array<std::string, 2>& ends) {
    part["type"] = "TemplateProcessing";
    Json& ids = part["special_tokens"] = Json::object();
    Json& single = part["single"];
    const auto put = [&](const char* flag, bool otherwise, const std::string& token) {
        if (!settings.flag(flag, otherwise && !token.empty())) {
            return;
        }
        const auto id = tokens.find(token);
        if (!id) {
            throw Error(std::string(flag) + " is set, and the token \"" + token + "\" is not in the vocabulary",
                        "tokenizer");
        }
        ids[token]["ids"][0] = *id;
        single.emplace_back()["SpecialToken"]["id"] = token;
    };
    put("add_bos_token", true, ends[0]);
    single.emplace_back()["Sequence"]["id"] = "A";
    put("add_eos_token", false, ends[1]);
}

void write_decoder(Json& part, bool prefix) {
    part["type"] = "Sequence";
    Json& steps = part["decoders"];
    Json& spaces = steps.emplace_back();
    spaces["type"] = "Replace";
    spaces["pattern"]["String"] = kSpace;
    spaces["content"] = " ";
    steps.emplace_back()["type"] = "ByteFallback";
    steps.emplace_back()["type"] = "Fuse";
    if (prefix) {
        Json& first = steps.emplace_back();
        first["type"] = "Strip";
        first["content"] = " ";
        first["start"] = 1;
        first["stop"] = 0;
    }
}

}  // namespace

SentencePiece read_sentencepiece(std::string_view content, const std::filesystem::path& folder) {
    check_model(content);
    const Settings settings(folder);
    auto model = std::make_unique<SentencePieceModel>(content, settings.flag("add_prefix_space", true),
                                                      settings.flag("legacy", false));
    TokenList tokens(model->vocabulary());
    for (AddedToken& token : settings.added_tokens()) {
        tokens.add(std::move(token));
    }
    const Processor& p = model->processor();
    const std::pair<const char*, int> named[] = {
        {"bos_token", p.bos_id()}, {"eos_token", p.eos_id()}, {"unk_token", p.unk_id()}, {"pad_token", p.pad_id()}};
    std::vector<std::string> texts;
    for (const auto& [name, id] : named) {
        texts.push_back(settings.named(name).value_or(id < 0 ? std::string() : std::string(p.IdToPiece(id))));
        tokens.add_special(texts.back());
    }
    for (const std::string& content_of_one : settings.additional()) {
        tokens.add_special(content_of_one);
    }
    OwnedJson rest;
    write_post_processor(rest["post_processor"], settings, tokens, {texts[0], texts[1]});
    write_decoder(rest["decoder"], model->prefix());
    return {std::move(model), tokens.take(), std::move(rest)};
}

}  // namespace vkf::text

#endif
