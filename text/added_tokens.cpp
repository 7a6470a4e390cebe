// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace vkf::text {

AddedToken read_added_token(const Json& entry) { return read_added_token(entry, token_id(entry.at("id"))); }

AddedToken read_added_token(const Json& entry, TokenId id) {
    AddedToken t;
    t.id = id;
    t.content = entry.at("content").get<std::string>();
    t.single_word = member_or(entry, "single_word", false);
    t.lstrip = member_or(entry, "lstrip", false);
    t.rstrip = member_or(entry, "rstrip", false);
    t.special = member_or(entry, "special", false);
    t.normalized = member_or(entry, "normalized", !t.special);
    t.normalized_by_special = entry.find("normalized") == entry.end();
    return t;
}

namespace {

/// Finds where the space at the end of the text begins.
std::size_t space_before(std::string_view text) {
    std::size_t begin = 0;
    std::size_t at = 0;
    for_each_character(text, [&](std::string_view character, char32_t c) {
        at += character.size();
        begin = is_space(c) ? begin : at;
    });
    return begin;
}

/// Counts the bytes of space at the front.
std::size_t space_after(std::string_view text) {
    std::size_t bytes = 0;
    while (bytes < text.size() && is_space(code_point(text.substr(bytes)))) {
        bytes += character_bytes(text.substr(bytes));
    }
    return bytes;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizer& normalizer)
    : tokens_(std::move(tokens)), word_(regex_finder("[" + std::string(kWordClass) + "]")) {
    std::vector<std::int32_t> sought[2];  // [normalized]
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        AddedToken& t = tokens_[i];
        const auto known = vocabulary.find(t.content);
        if (t.id < 0 || (known && *known != t.id) || !by_id_.emplace(t.id, i).second) {
            throw Error("its id " + std::to_string(t.id) + " contradicts the vocabulary or another added token",
                        "tokenizer: added token \"" + t.content + "\"");
        }
        t.shown = t.normalized ? normalizer({t.content}).text : t.content;
        if (t.special) {
            special_.insert(t.content);
        }
        if (!t.shown.empty()) {
            sought[t.normalized ? 1 : 0].push_back(static_cast<std::int32_t>(i));
        }
    }
    for (const int normalized : {0, 1}) {
        sought_[normalized].sort(sought[normalized], shown_of());
    }
}

const AddedToken* AddedTokens::longest_at(std::string_view text, bool normalized) const {
    const AddedToken* found = nullptr;
    sought_[normalized ? 1 : 0].for_each(
        text, shown_of(), [&](std::size_t, std::int32_t place) { found = &tokens_[static_cast<std::size_t>(place)]; });
    return found;
}

bool AddedTokens::stands_alone(std::string_view text, std::size_t begin, std::size_t end) const {
    std::size_t last = begin;
    while (last > 0 && (static_cast<unsigned char>(text[--last]) & 0xC0) == 0x80) {
    }
    const auto is_word = [&](std::string_view character) { return !character.empty() && word_(character)[0].match; };
    return !is_word(text.substr(last, begin - last)) &&
           (end == text.size() || !is_word(text.substr(end, character_bytes(text.substr(end)))));
}

std::vector<Found> AddedTokens::find(std::string_view text, bool normalized) const {
    std::vector<Found> parts;
    std::size_t done = 0;
    std::size_t run_end = 0;  // of the space that was taken along last
    for (std::size_t at = 0; at < text.size();) {
        const AddedToken* found = longest_at(text.substr(at), normalized);
        if (found == nullptr) {
            ++at;
            continue;
        }
        const AddedToken& token = *found;
        std::size_t begin = at;
        std::size_t end = at + token.shown.size();
        at = end;
        if (token.single_word && !stands_alone(text, begin, end)) {
            continue;
        }
        if (token.lstrip) {
            begin = done < begin ? done + space_before(text.substr(done, begin - done)) : done;
        }
        if (token.rstrip) {  // tokens in this space are found all the same
            run_end = end < run_end ? run_end : end + space_after(text.substr(end));
            end = run_end;
        }
        if (done < begin) {
            parts.push_back({text.substr(done, begin - done), nullptr});
        }
        if (begin < end) {  // another token may have taken all of its space
            parts.push_back({text.substr(begin, end - begin), &token});
        }
        done = end;
    }
    if (done < text.size()) {
        parts.push_back({text.substr(done), nullptr});
    }
    return parts;
}

const AddedToken* AddedTokens::find(TokenId id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find_content(std::string_view content) const {
    const auto found =
        std::find_if(tokens_.begin(), tokens_.end(), [&](const AddedToken& t) { return t.content == content; });
    return found == tokens_.end() ? nullptr : &*found;
}

}  // namespace vkf::text
