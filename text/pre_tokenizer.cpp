// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <map>

#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

std::size_t bytes_of(const std::vector<Piece>& pieces) {
    std::size_t bytes = 0;
    for (const Piece& p : pieces) {
        bytes += p.text.size();
    }
    return bytes;
}

/// Applies f(text, first) -> pieces of that text to each.
template <class F>
PreTokenizer each(F f) {
    return [f = std::move(f)](std::vector<Piece> pieces) {
        std::vector<Piece> out;
        Growth growth(bytes_of(pieces));
        for (Piece& p : pieces) {
            const bool first = p.first;
            bool begins = first;
            for (std::string& text : f(std::move(p.text), first)) {
                growth.add(text.size());
                out.push_back({std::move(text), begins});
                begins = false;
            }
        }
        return out;
    };
}

std::vector<std::string> strings(const std::vector<std::string_view>& pieces) { return {pieces.begin(), pieces.end()}; }

PreTokenizer splitting(Finder finder, SplitBehavior behavior, bool invert = false) {
    return [finder = std::move(finder), behavior, invert](const std::vector<Piece>& pieces) {
        std::vector<Piece> out;
        for (const Piece& p : pieces) {
            for (const std::string_view part : split(p.text, finder, behavior, invert)) {
                out.push_back({std::string(part), p.first && part.data() == p.text.data()});
            }
        }
        return out;
    };
}

SplitBehavior read_behavior(const Json& behavior) {
    static const std::map<std::string, SplitBehavior> kBehaviors{
        {"Removed", SplitBehavior::removed},
        {"Isolated", SplitBehavior::isolated},
        {"MergedWithPrevious", SplitBehavior::merged_with_previous},
        {"MergedWithNext", SplitBehavior::merged_with_next},
        {"Contiguous", SplitBehavior::contiguous}};
    const auto found = kBehaviors.find(behavior.get<std::string>());
    if (found == kBehaviors.end()) {
        refuse("split behavior", behavior.get<std::string>());
    }
    return found->second;
}

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

PreTokenizer byte_level(const Json& part) {
    const bool prefix = member_or(part, "add_prefix_space", true);
    const Finder finder = member_or(part, "use_regex", true) ? regex_finder(kGpt2Pattern) : Finder();
    return each([=](std::string text, bool) {
        if (prefix && !text.starts_with(' ')) {
            text.insert(0, 1, ' ');
        }
        std::vector<std::string> words =
            finder ? strings(split(text, finder, SplitBehavior::isolated)) : std::vector<std::string>{text};
        for (std::string& word : words) {
            word = bytes_to_characters(word);
        }
        return words;
    });
}

PreTokenizer metaspace(const Json& part) {
    const Metaspace m = read_metaspace(part);
    return each([m, spaces = text_finder(" "), marks = text_finder(m.replacement)](const std::string& given,
                                                                                   bool first) {
        std::string text = replace_all(given, spaces, m.replacement);
        const bool wanted =
            m.prepend == Metaspace::Prepend::always || (m.prepend == Metaspace::Prepend::first && first);
        if (wanted && !text.starts_with(m.replacement)) {
            text.insert(0, m.replacement);
        }
        return m.split ? strings(split(text, marks, SplitBehavior::merged_with_next)) : std::vector<std::string>{text};
    });
}

PreTokenizer sequence(const Json& part) {
    return [all = sequence_of(part, "pretokenizers", make_pre_tokenizer)](std::vector<Piece> pieces) {
        const std::size_t given = bytes_of(pieces);
        for (const PreTokenizer& p : all) {
            pieces = p(std::move(pieces));
            require_growth(bytes_of(pieces), given);
        }
        return pieces;
    };
}

PreTokenizer bert() {
    return [words = splitting(character_finder(is_space), SplitBehavior::removed),
            signs = splitting(character_finder(is_punctuation), SplitBehavior::isolated)](std::vector<Piece> pieces) {
        return signs(words(std::move(pieces)));
    };
}

}  // namespace

Metaspace read_metaspace(const Json& part) {
    Metaspace m;
    m.replacement = member_or(part, "replacement", m.replacement);
    m.split = member_or(part, "split", true);
    const bool prefix = member_or(part, "add_prefix_space", true);
    const std::string scheme = member_or(part, "prepend_scheme", std::string(prefix ? "always" : "never"));
    if (scheme != "always" && scheme != "first" && scheme != "never") {
        refuse("prepend_scheme", scheme);
    }
    m.prepend = scheme == "always"  ? Metaspace::Prepend::always
                : scheme == "first" ? Metaspace::Prepend::first
                                    : Metaspace::Prepend::never;
    return m;
}

PreTokenizer make_pre_tokenizer(const Json& part) {
    const std::string type = type_of(part);
    if (type.empty()) {
        return [](std::vector<Piece> pieces) { return pieces; };
    }
    if (type == "Sequence") {
        return sequence(part);
    }
    if (type == "ByteLevel") {
        return byte_level(part);
    }
    if (type == "Split") {
        return splitting(make_finder(part.at("pattern")), read_behavior(part.at("behavior")),
                         member_or(part, "invert", false));
    }
    if (type == "Digits") {
        return splitting(character_finder(is_number), member_or(part, "individual_digits", false)
                                                          ? SplitBehavior::isolated
                                                          : SplitBehavior::contiguous);
    }
    if (type == "Metaspace") {
        return metaspace(part);
    }
    if (type == "BertPreTokenizer") {
        return bert();
    }
    if (type == "Whitespace") {
        return splitting(regex_finder("[" + std::string(kWordClass) + "]+|[^" + kWordClass + "\\s]+"),
                         SplitBehavior::removed, true);
    }
    if (type == "WhitespaceSplit") {
        return splitting(character_finder(is_space), SplitBehavior::removed);
    }
    if (type == "Punctuation") {
        return splitting(character_finder(is_punctuation),
                         part.contains("behavior") ? read_behavior(part.at("behavior")) : SplitBehavior::isolated);
    }
    if (type == "CharDelimiterSplit") {
        return splitting(text_finder(part.at("delimiter").get<std::string>()), SplitBehavior::removed);
    }
    refuse("pre-tokenizer", type);
}

}  // namespace vkf::text
