// SPDX-License-Identifier: Apache-2.0
// Texts that tests read and write, those of errors too.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/error.h"

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

/// Gives the text of the Error that f() throws; empty where it throws none.
template <class F>
std::string error_of(F f) {
    try {
        f();
    } catch (const Error& e) {
        return e.what();
    }
    return {};
}

}  // namespace vkf::test
