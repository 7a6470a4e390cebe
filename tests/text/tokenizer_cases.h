// SPDX-License-Identifier: Apache-2.0
// What the tests of tokenizers share: cases of the reference, small models, refusals.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace vkf::test {

inline nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
}

/// Says what differs first in one case; empty: nothing.
inline std::string mismatch(const Tokenizer& tokenizer, const nlohmann::json& c) {
    const std::string text = c[0];
    const std::vector<std::int32_t> ids = c[1];
    const std::vector<std::int32_t> plain = c[2].is_null() ? ids : c[2].get<std::vector<std::int32_t>>();
    const std::string decoded = c[3].is_null() ? text : c[3].get<std::string>();
    const std::string raw = c[4].is_null() ? decoded : c[4].get<std::string>();
    const auto differs = [&](const char* what, const nlohmann::json& got, const nlohmann::json& want) {
        return got == want ? std::string()
                           : nlohmann::json(text).dump() + " " + what + " " + got.dump() + ", want " + want.dump();
    };
    for (const std::string& found :
         {differs("ids", tokenizer.encode(text, true, true), ids),
          differs("plain", tokenizer.encode(text, false, true), plain),
          differs("decoded", tokenizer.decode(ids), decoded), differs("raw", tokenizer.decode(ids, false), raw)}) {
        if (!found.empty()) {
            return found;
        }
    }
    return {};
}

/// The text as it comes token by token, each part well-formed.
inline std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    TokenStream stream(tokenizer);
    std::string text;
    for (const std::int32_t id : ids) {
        const std::string part = stream.push(id);
        CHECK(text::malformed_at(part) == std::string::npos);
        text += part;
    }
    const std::string last = stream.finish();
    CHECK(text::malformed_at(last) == std::string::npos);
    return text + last;
}

/// A folder of its own, gone at the end.
struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("vkformer-" + std::to_string(std::random_device{}()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
};

inline std::string refusal(const std::string& text) {
    try {
        Tokenizer::parse(text, "tokenizer.json");
        return "accepted";
    } catch (const Error& error) {
        return error.what();
    }
}

inline nlohmann::json small_bpe() {
    return {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
}

}  // namespace vkf::test
