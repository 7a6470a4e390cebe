// SPDX-License-Identifier: Apache-2.0
// What happens to a text before it is cut: tokenizer.json's "normalizer".
#pragma once

#include <functional>
#include <string>

#include "text/json.h"
#include "text/pattern.h"

namespace vkf::text {

struct Normalized {
    std::string text;
    bool keeps_front = true;  ///< what the given text begins with is still there, changed or not
};

using Normalizer = std::function<Normalized(Normalized)>;

/// Makes a normalizer, which is never empty: null gives one that changes nothing. Throws Error
/// naming a kind that is not known.
Normalizer make_normalizer(const Json& part);

/// Makes a finder of {"String": "..."} or {"Regex": "..."}, as replacements and splits have them.
Finder make_finder(const Json& pattern);
/// Gives the text without the space at its front, and without that at its end.
std::string stripped(const std::string& text, bool left, bool right);
/// Throws Error where a text grew to more than 32 times its bytes and 64 KiB: each of many steps
/// could double it, and what parts it takes up to a hundred bytes for each of its own.
void require_growth(std::size_t bytes, std::size_t text_bytes);
/// The same of a text in parts, each of which may become more or less: their sum is bounded.
class Growth {
public:
    explicit Growth(std::size_t text_bytes) : text_bytes_(text_bytes) {}
    void add(std::size_t bytes) {
        bytes_ += bytes;
        require_growth(bytes_, text_bytes_);
    }

private:
    std::size_t text_bytes_, bytes_ = 0;
};
/// Gives the text with each match replaced. Throws Error where it grows as above.
std::string replace_all(const std::string& text, const Finder& finder, const std::string& by);

}  // namespace vkf::text
