// SPDX-License-Identifier: Apache-2.0
// docs/reliability.md names tests: each of them is there.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/text.h"

namespace {

namespace fs = std::filesystem;

/// What stands between `open` and the next `close`, each time.
std::vector<std::string> parts_between(const std::string& text, const std::string& open, const std::string& close) {
    std::vector<std::string> parts;
    for (std::size_t at = text.find(open); at != std::string::npos;) {
        const std::size_t from = at + open.size();
        const std::size_t to = text.find(close, from);
        if (to == std::string::npos) {
            break;
        }
        parts.push_back(text.substr(from, to - from));
        at = text.find(open, to + close.size());
    }
    return parts;
}

/// The names of all test cases.
std::set<std::string> test_names() {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(VKFORMER_SOURCE_DIR) / "tests")) {
        if (entry.path().extension() == ".cpp") {
            for (const std::string& name : parts_between(vkf::test::whole(entry.path()), "TEST_CASE(\"", "\"")) {
                names.insert(name);
            }
        }
    }
    return names;
}

}  // namespace

TEST_CASE("reliability: every test that the page names is there, and every row names one") {
    const std::string page = vkf::test::whole(fs::path(VKFORMER_SOURCE_DIR) / "docs" / "reliability.md");
    const std::size_t begin = page.find("## What did users of other libraries suffer?");
    REQUIRE(begin != std::string::npos);
    const std::string section = page.substr(begin, page.find("\n## ", begin + 3) - begin);
    const std::set<std::string> known = test_names();
    REQUIRE(known.size() > 500);
    std::size_t rows = 0;
    for (std::size_t at = section.find("\n| "); at != std::string::npos; at = section.find("\n| ", at + 1)) {
        const std::string row = section.substr(at + 1, section.find('\n', at + 1) - at - 1);
        if (row.find("| symptom |") != std::string::npos) {
            continue;
        }
        CAPTURE(row);
        ++rows;
        const std::vector<std::string> named = parts_between(row, "`", "`");
        CHECK(!named.empty());
        for (const std::string& name : named) {
            CAPTURE(name);
            // a test case, or one of ctest's, which are called by program and driver
            CHECK((known.count(name) == 1 || name.find(": ") == std::string::npos));
        }
    }
    CHECK(rows >= 24);
}
