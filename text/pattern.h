// SPDX-License-Identifier: Apache-2.0
// Regular expressions as tokenizer.json writes them (Oniguruma's Ruby syntax), matched by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vkf::text {

/// A part of a text, and whether a pattern matched it.
struct Part {
    std::size_t begin = 0, end = 0;
    bool match = false;
};

/// Cuts a text into matches, which may be empty, and what lies between them; together they cover
/// it.
using Finder = std::function<std::vector<Part>(std::string_view)>;

/// The characters of a word where `tokenizers` itself says \w (Unicode's UTS 18, annex C), for a
/// class.
inline constexpr const char* kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control})";

/// The treatment of matches where a text is split.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Throws Error naming the expression where it is none, or uses what the two syntaxes read
/// differently.
Finder regex_finder(const std::string& expression);
/// Finds each occurrence of a fixed text.
Finder text_finder(const std::string& wanted);
/// Finds each character for which `wanted` is true, by itself.
Finder character_finder(bool (*wanted)(char32_t));

/// The pieces of the text, none empty. `invert`: what does not match counts as match.
std::vector<std::string_view> split(std::string_view text, const Finder& finder, SplitBehavior behavior,
                                    bool invert = false);

/// Oniguruma's expression in PCRE2's words.
std::string pcre2_expression(const std::string& expression);

}  // namespace vkf::text
