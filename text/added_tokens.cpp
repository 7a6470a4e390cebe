// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace vkf::text {

namespace {

AddedToken read(const Json& entry) {
    AddedToken t;
    t.id = token_id(entry.at("id"));
    t.content = entry.at("content").get<std::string>();
    t.single_word = member_or(entry, "single_word", false);
    t.lstrip = member_or(entry, "lstrip", false);
    t.rstrip = member_or(entry, "rstrip", false);
    t.special = member_or(entry, "special", false);
    t.normalized = member_or(entry, "normalized", !t.special);
    return t;
}

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

AddedTokens::AddedTokens(const Json& list, const Vocabulary& vocabulary, const Normalizer& normalizer)
    : word_(regex_finder("[" + std::string(kWordClass) + "]")) {
    for (const Json& entry : list) {
        AddedToken t = read(entry);
        const std::string where = "tokenizer: added token \"" + t.content + "\"";
        const auto known = vocabulary.find(t.content);
        if (t.id < 0 || (known && *known != t.id) || !by_id_.emplace(t.id, tokens_.size()).second) {
            throw Error("its id " + std::to_string(t.id) + " contradicts the vocabulary or another added token", where);
        }
        const std::string text = t.normalized ? normalizer(t.content) : t.content;
        if (!text.empty()) {
            wanted_[t.normalized ? 1 : 0][static_cast<unsigned char>(text[0])].push_back({text, tokens_.size()});
        }
        t.shown = t.normalized ? text : t.content;
        tokens_.push_back(std::move(t));
    }
    for (auto& by_byte : wanted_) {
        for (auto& [byte, all] : by_byte) {
            std::stable_sort(all.begin(), all.end(),
                             [](const Wanted& a, const Wanted& b) { return a.text.size() > b.text.size(); });
        }
    }
}

const AddedTokens::Wanted* AddedTokens::longest_at(std::string_view text, std::size_t at, bool normalized) const {
    const auto& by_byte = wanted_[normalized ? 1 : 0];
    const auto all = by_byte.find(static_cast<unsigned char>(text[at]));
    if (all == by_byte.end()) {
        return nullptr;
    }
    const auto found = std::find_if(all->second.begin(), all->second.end(),
                                    [&](const Wanted& w) { return text.substr(at).starts_with(w.text); });
    return found == all->second.end() ? nullptr : &*found;
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
    for (std::size_t at = 0; at < text.size();) {
        const Wanted* found = longest_at(text, at, normalized);
        if (found == nullptr) {
            ++at;
            continue;
        }
        std::size_t begin = at;
        std::size_t end = at + found->text.size();
        at = end;
        const AddedToken& token = tokens_[found->token];
        if (token.single_word && !stands_alone(text, begin, end)) {
            continue;
        }
        begin = token.lstrip ? std::max(space_before(text.substr(0, begin)), done) : begin;
        end += token.rstrip ? space_after(text.substr(end)) : 0;
        if (done < begin) {
            parts.push_back({text.substr(done, begin - done), nullptr});
        }
        parts.push_back({text.substr(begin, end - begin), &token});
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
