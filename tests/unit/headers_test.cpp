// SPDX-License-Identifier: Apache-2.0
// The lists in cmake/Headers.cmake: public headers, and advanced ones for op authors.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/lines.h"

using vkf::test::lines;

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = VKFORMER_SOURCE_DIR;
const char* const kRooms[] = {"runtime", "ops", "layers", "models"};

std::string whole(const fs::path& path) {
    std::ifstream in(path);
    REQUIRE(in);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> found_in(const std::string& text, const char* pattern) {
    const std::regex regex(pattern);
    std::set<std::string> out;
    for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i) {
        out.insert((*i)[1].str());
    }
    return out;
}

std::set<std::string> listed(const std::string& name) {
    const std::string cmake = whole(kRoot / "cmake/Headers.cmake");
    const std::size_t begin = cmake.find("set(" + name);
    REQUIRE(begin != std::string::npos);
    return found_in(cmake.substr(begin, cmake.find(')', begin) - begin), R"(([\w/]+\.h))");
}

std::set<std::string> both(std::set<std::string> a, const std::set<std::string>& b) {
    a.insert(b.begin(), b.end());
    return a;
}

/// "a includes b" for each project file that is included and not among `allowed`.
std::vector<std::string> leads_elsewhere(const std::set<std::string>& headers, const std::set<std::string>& allowed) {
    std::vector<std::string> out;
    for (const std::string& header : headers) {
        for (const std::string& include : found_in(whole(kRoot / header), "#include \"([^\"]+)\"")) {
            const fs::path other = (fs::path(header).parent_path() / include).lexically_normal();
            if (allowed.count(other.generic_string()) == 0) {
                out.push_back(header + " includes " + include);
            }
        }
    }
    return out;
}

/// Headers of the library that are not in `all`, though they have something for others to link.
std::vector<std::string> forgotten(const std::set<std::string>& all) {
    std::vector<std::string> out;
    for (const char* room : kRooms) {
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / room)) {
            const std::string name = entry.path().lexically_relative(kRoot).generic_string();
            if (entry.path().extension() == ".h" && all.count(name) == 0 &&
                whole(entry.path()).find("VKF_API") != std::string::npos) {
                out.push_back(name);
            }
        }
    }
    return out;
}

}  // namespace

TEST_SUITE("headers") {
    TEST_CASE("headers: installed ones include installed ones only, and public ones no advanced one") {
        const std::set<std::string> open = listed("public_headers"), advanced = listed("advanced_headers");
        CHECK(open.size() > 40);
        CHECK(advanced.size() > 5);
        const std::vector<std::string> of_public = leads_elsewhere(open, open);
        CHECK_MESSAGE(of_public.empty(), lines(of_public));
        const std::vector<std::string> of_advanced = leads_elsewhere(advanced, both(open, advanced));
        CHECK_MESSAGE(of_advanced.empty(), lines(of_advanced));
        CHECK(leads_elsewhere(advanced, open).size() > 5);  // the check sees what leads elsewhere
    }

    TEST_CASE("headers: what others can link is in a header of theirs") {
        const std::set<std::string> all = both(listed("public_headers"), listed("advanced_headers"));
        const std::vector<std::string> missing = forgotten(all);
        CHECK_MESSAGE(missing.empty(), lines(missing));
        CHECK(forgotten(listed("public_headers")).size() > 3);
    }

    TEST_CASE("headers: an advanced one says so, and its name is its own") {
        std::set<std::string> names;
        for (const std::string& header : listed("advanced_headers")) {
            const std::string name = fs::path(header).filename().string(), text = whole(kRoot / header);
            const std::size_t said = text.find("// For op authors: <vkformer/advanced/" + name + ">. It may change");
            CHECK_MESSAGE(said < text.find("#pragma once"), header);
            CHECK_MESSAGE(names.insert(name).second, header);
        }
        for (const std::string& header : listed("public_headers")) {
            CHECK_MESSAGE(whole(kRoot / header).find("vkformer/advanced") == std::string::npos, header);
        }
    }
}
