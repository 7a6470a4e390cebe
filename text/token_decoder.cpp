// SPDX-License-Identifier: Apache-2.0
#include "text/token_decoder.h"

#include <array>
#include <string_view>

#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace vkf::text {

namespace {

using Tokens = std::vector<std::string>;

std::size_t bytes_of(const Tokens& tokens) {
    std::size_t bytes = 0;
    for (const std::string& t : tokens) {
        bytes += t.size();
    }
    return bytes;
}

/// Applies f(token, index, count) to each.
template <class F>
TokenDecoder each(F f) {
    return [f = std::move(f)](Tokens tokens) {
        Growth growth(bytes_of(tokens) + tokens.size());  // one without text may become a space
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            tokens[i] = f(tokens[i], i, tokens.size());
            growth.add(tokens[i].size());
        }
        return tokens;
    };
}

Tokens byte_level(const Tokens& tokens) {
    std::string bytes;
    for (const std::string& t : tokens) {
        if (!characters_to_bytes(t, bytes)) {
            bytes += t;
        }
    }
    return {well_formed(bytes)};
}

/// The byte that <0xHH> names; -1: the token is another.
int named_byte(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
        return -1;
    }
    const std::string digits = token.substr(3, 2);
    const bool good = digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    return good ? std::stoi(digits, nullptr, 16) : -1;
}

/// Runs of bytes become their text, or U+FFFD for each byte where they are none.
Tokens byte_fallback(const Tokens& tokens) {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
        if (!bytes.empty() && malformed_at(bytes) == std::string::npos) {
            out.push_back(bytes);
        } else {
            out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
        }
        bytes.clear();
    };
    for (const std::string& t : tokens) {
        if (const int byte = named_byte(t); byte >= 0) {
            bytes += static_cast<char>(byte);
        } else {
            flush();
            out.push_back(t);
        }
    }
    flush();
    return out;
}

Tokens fused(const Tokens& tokens) {
    std::string all;
    for (const std::string& t : tokens) {
        all += t;
    }
    return {all};
}

TokenDecoder strip(const Json& part) {
    const std::string content = part.at("content").get<std::string>();
    const auto start = whole_number<std::size_t>(part.at("start"));
    const auto stop = whole_number<std::size_t>(part.at("stop"));
    if (content.empty()) {
        refuse("a decoder Strip", "of nothing");
    }
    return each([=](const std::string& token, std::size_t, std::size_t) {
        std::string_view left = token;
        for (std::size_t i = 0; i < start && left.starts_with(content); ++i) {
            left.remove_prefix(content.size());
        }
        for (std::size_t i = 0; i < stop && left.ends_with(content); ++i) {
            left.remove_suffix(content.size());
        }
        return std::string(left);
    });
}

TokenDecoder metaspace(const Json& part) {
    const Metaspace m = read_metaspace(part);
    return each([m, marks = text_finder(m.replacement)](const std::string& token, std::size_t i, std::size_t) {
        return replace_all(token, marks, i == 0 && m.prepend != Metaspace::Prepend::never ? "" : " ");
    });
}

std::string replaced(std::string text, const std::string& wanted, const std::string& by) {
    return replace_all(text, text_finder(wanted), by);
}

/// Puts English together again: " ." becomes ".".
std::string cleaned(std::string text) {
    static constexpr std::array<std::array<const char*, 2>, 11> kRules{{{" .", "."},
                                                                        {" ?", "?"},
                                                                        {" !", "!"},
                                                                        {" ,", ","},
                                                                        {" ' ", "'"},
                                                                        {" n't", "n't"},
                                                                        {" 'm", "'m"},
                                                                        {" do not", " don't"},
                                                                        {" 's", "'s"},
                                                                        {" 've", "'ve"},
                                                                        {" 're", "'re"}}};
    for (const auto& [wanted, by] : kRules) {
        text = replaced(std::move(text), wanted, by);
    }
    return text;
}

TokenDecoder word_piece(const Json& part) {
    return each([prefix = member_or(part, "prefix", std::string("##")), clean = member_or(part, "cleanup", true)](
                    std::string token, std::size_t i, std::size_t) {
        if (i != 0) {
            token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
        }
        return clean ? cleaned(token) : token;
    });
}

TokenDecoder bpe(const Json& part) {
    return each([suffix = member_or(part, "suffix", std::string("</w>"))](const std::string& token, std::size_t i,
                                                                          std::size_t count) {
        return replaced(token, suffix, i + 1 == count ? "" : " ");
    });
}

TokenDecoder sequence(const Json& part) {
    return [all = sequence_of(part, "decoders", make_token_decoder)](Tokens tokens) {
        const std::size_t given = bytes_of(tokens);
        for (const TokenDecoder& d : all) {
            tokens = d(std::move(tokens));
            require_growth(bytes_of(tokens), given);
        }
        return tokens;
    };
}

}  // namespace

TokenDecoder make_token_decoder(const Json& part) {
    const std::string type = type_of(part);
    if (type.empty()) {
        return each([](const std::string& token, std::size_t i, std::size_t) { return i == 0 ? token : " " + token; });
    }
    if (type == "Sequence") {
        return sequence(part);
    }
    if (type == "ByteLevel") {
        return byte_level;
    }
    if (type == "ByteFallback") {
        return byte_fallback;
    }
    if (type == "Fuse") {
        return fused;
    }
    if (type == "Replace") {
        return each([finder = make_finder(part.at("pattern")), by = part.at("content").get<std::string>()](
                        const std::string& token, std::size_t, std::size_t) { return replace_all(token, finder, by); });
    }
    if (type == "Strip") {
        return strip(part);
    }
    if (type == "Metaspace") {
        return metaspace(part);
    }
    if (type == "WordPiece") {
        return word_piece(part);
    }
    if (type == "BPEDecoder") {
        return bpe(part);
    }
    refuse("decoder", type);
}

}  // namespace vkf::text
