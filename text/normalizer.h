// SPDX-License-Identifier: Apache-2.0
// What happens to a text before it is cut: tokenizer.json's "normalizer".
#pragma once

#include <functional>
#include <string>

#include "text/json.h"
#include "text/pattern.h"

namespace vkf::text {

using Normalizer = std::function<std::string(std::string)>;

/// Makes a normalizer, which is never empty: null gives one that changes nothing. Throws Error
/// naming a kind that is not known.
Normalizer make_normalizer(const Json& part);

/// Makes a finder of {"String": "..."} or {"Regex": "..."}, as replacements and splits have them.
Finder make_finder(const Json& pattern);
/// Gives the text without the space at its front, and without that at its end.
std::string stripped(const std::string& text, bool left, bool right);
/// Gives the text with each match replaced.
std::string replace_all(const std::string& text, const Finder& finder, const std::string& by);

}  // namespace vkf::text
