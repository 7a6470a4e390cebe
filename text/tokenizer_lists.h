// SPDX-License-Identifier: Apache-2.0
// The long lists of tokenizer.json, which are read entry by entry: parsed whole they would take
// many times what their tokens take.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace vkf::text {

/// A list or an object of which every entry is read by itself. Empty text: it is not there.
struct LongList {
    std::string_view json;
    std::size_t entries = 0;  ///< about: commas are counted
};

/// tokenizer.json cut in parts. The lists point into the text that they were cut out of.
struct TokenizerJson {
    OwnedJson rest;  ///< has an empty list, or an empty object, in place of each
    LongList vocab, merges;
    LongList added_tokens;
};

/// Throws Error where the text is no JSON, or what it lists would take too much memory.
TokenizerJson cut_tokenizer(std::string_view text);

/// An entry: "text", ["text", "text"], ["text", number], or of an object a member "text": number.
struct ListEntry {
    std::vector<std::string> texts;
    Json number;  ///< null: there is none
};

/// Calls f for each in order. Throws Error where it is none of these.
void for_each_entry(const LongList& list, const std::function<void(ListEntry&)>& f);

/// Calls f for each entry of a list of objects, parsed by itself.
void for_each_object(const LongList& list, const std::function<void(const Json&)>& f);

}  // namespace vkf::text
