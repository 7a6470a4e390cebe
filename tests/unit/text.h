// SPDX-License-Identifier: Apache-2.0
// Texts that tests read and write, those of errors too.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/errors.h"

namespace vkf::test {

/// Findings, a line each, for a message.
inline std::string lines(const std::vector<std::string>& all) {
    std::string out;
    for (const std::string& line : all) {
        out += "\n  " + line;
    }
    return out;
}

/// Gives the text of a file, which must be there.
inline std::string whole(const std::filesystem::path& path) {
    std::ifstream in(path);
    REQUIRE_MESSAGE(in, path);
    return {std::istreambuf_iterator<char>(in), {}};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace vkf::test
