// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as tokenizer.json says (Hugging Face's `tokenizers`): byte-level and
// byte-fallback BPE, Unigram, WordPiece, whole words; or as a SentencePiece model does
// (tokenizer.model).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../runtime/base/export.h"

namespace vkf {

/// A tokenizer is immutable, and may be used by several threads at once.
class VKF_API Tokenizer {
public:
    /// Reads a tokenizer.json, or the one in a folder, or a tokenizer.model (any file named so)
    /// with the tokenizer_config.json beside it. Throws Error naming the file, and any part of it
    /// that is not known.
    explicit Tokenizer(const std::filesystem::path& path);
    /// Parses text that is in memory; `name` stands for the file in errors.
    static Tokenizer parse(std::string_view json, const std::string& name);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    /// The ids of UTF-8 text. `special`: with the tokens that the post-processor puts around it.
    /// `truncate`: cut to the file's `truncation`, where it has one (transformers, too, cuts only
    /// when it is asked to). Padding is left to the caller. Throws Error where the text is not
    /// UTF-8, grows to more than 32 times its bytes and 64 KiB, or has what the file has no token
    /// for, not even one for what is unknown. BPE leaves that out instead, as `tokenizers` does.
    std::vector<std::int32_t> encode(std::string_view text, bool special = true, bool truncate = false) const;
    /// The ids of a text with the tokens that the post-processor puts around it: at most `most`,
    /// but never fewer than these, whatever the file's `truncation` says of their number. So
    /// sentence-transformers cuts, to EncoderFacts::cut_tokens. `lower_case`: of the text in lower
    /// case. Throws Error as encode().
    std::vector<std::int32_t> encode_within(std::string_view text, std::int64_t most, bool lower_case = false) const;
    /// The text of ids. Ids that no token has are skipped; with `skip_special` special tokens are
    /// skipped too.
    std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

    /// The id of a token; nothing when there is no such token.
    std::optional<std::int32_t> find(std::string_view token) const;
    /// The token of an id; empty when there is no such id.
    std::string token(std::int32_t id) const;
    /// All ids are below this.
    std::int32_t size() const noexcept;

private:
    friend class TokenStream;
    struct Parts;
    std::vector<std::int32_t> encode_cut(std::string_view text, bool special, std::optional<std::size_t> most) const;
    explicit Tokenizer(std::unique_ptr<const Parts> parts);
    std::unique_ptr<const Parts> parts_;
};

/// Turns tokens into text as they come, in whole characters.
class VKF_API TokenStream {
public:
    /// The tokenizer must outlive it.
    explicit TokenStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    /// Returns the text that this id adds; it may be empty until a later id completes a character.
    std::string push(std::int32_t id);
    /// Returns the text that is left at the end.
    std::string finish();

private:
    std::string added(const std::string& now) const;

    const Tokenizer* tokenizer_;
    std::vector<std::int32_t> ids_;  ///< those that the next text depends on
    std::size_t done_ = 0;           ///< those that are given out already
};

}  // namespace vkf
