// SPDX-License-Identifier: Apache-2.0
// The lists in cmake/Headers.cmake: public headers, and advanced ones for op authors.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/text.h"

using vkf::test::lines;
using vkf::test::whole;

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = VKFORMER_SOURCE_DIR;
const char* const kRooms[] = {"runtime", "ops", "layers", "models", "train"};

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

/// Gives "a includes b" for each project file that is included and not among `allowed`.
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

/// Gives the code without comments, texts and lines of the preprocessor.
std::string code_of(const std::string& text) {
    std::string out = std::regex_replace(text, std::regex("//[^\n]*"), "");
    out = std::regex_replace(out, std::regex("(^|\n)\\s*#[^\n]*"), "\n");
    return std::regex_replace(out, std::regex(R"("(?:\\.|[^"\\\n])*")"), "\"\"");
}

/// A declaration without what stands in its angle brackets and parentheses: of a function's,
/// "VKF_API int f()".
std::string without_brackets(const std::string& declaration) {
    std::string out;
    int angles = 0, round = 0;
    for (const char c : declaration) {
        angles -= c == '>' && angles > 0 ? 1 : 0;
        round -= c == ')' ? 1 : 0;
        if (angles == 0 && round == 0) {
            out += c;
        }
        angles += c == '<' && round == 0 ? 1 : 0;
        round += c == '(' ? 1 : 0;
    }
    return out;
}

/// Functions that such text declares and does not define, in a class or a namespace that does not
/// export them: nobody can link them.
std::vector<std::string> not_exported(const std::string& text) {
    static const std::regex function(R"(^[^=]*(\w|operator\W+)\s*\(\))");
    static const std::regex elsewhere(
        R"(\b(VKF_API|inline|constexpr|using|friend|typedef|static_assert)\b|=\s*(delete|default|0)\s*$|\(\)\()");
    static const std::regex access(R"(^\s*((public|private|protected)\s*:\s*)*)");
    enum class Scope : std::uint8_t { open, exported, body };
    std::vector<std::string> out;
    std::vector<Scope> scopes;
    std::string now;
    int round = 0;
    for (const char c : code_of(text)) {
        round += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (round > 0) {  // braces of a default argument open nothing
            now += c;
        } else if (c == '{') {
            const bool holds = std::regex_search(now, std::regex(R"(\b(namespace|class|struct|union)\b)")) &&
                               !std::regex_search(now, std::regex(R"([(=]|\benum\b)"));
            const bool inside = !scopes.empty() && scopes.back() != Scope::open;
            scopes.push_back(!holds                                     ? Scope::body
                             : inside                                   ? scopes.back()
                             : now.find("VKF_API") != std::string::npos ? Scope::exported
                                                                        : Scope::open);
            now.clear();
        } else if (c == '}') {
            REQUIRE(!scopes.empty());
            scopes.pop_back();
            now.clear();
        } else if (c == ';') {
            const std::string declared = std::regex_replace(without_brackets(now), access, "");
            const bool open = scopes.empty() || scopes.back() == Scope::open;
            if (open && std::regex_search(declared, function) && !std::regex_search(declared, elsewhere)) {
                out.push_back(declared);
            }
            now.clear();
        } else {
            now += c;
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

    TEST_CASE("headers: what others find declared they can link") {
        CHECK(not_exported("namespace a { class VKF_API B { int f() const; }; VKF_API int g(int (*h)()); }").empty());
        CHECK(not_exported("struct C { int f() { return 1; } C() = default; int x = f(); Use<int(int)> y = {}; };")
                  .empty());
        CHECK(not_exported("namespace a { std::vector<int> f(A x = {}); struct B { int g(); // h();\n }; }").size() ==
              2);
        std::vector<std::string> out;
        for (const std::string& header : both(listed("public_headers"), listed("advanced_headers"))) {
            for (const std::string& declared : not_exported(whole(kRoot / header))) {
                out.push_back(header + ": " + declared);
            }
        }
        CHECK_MESSAGE(out.empty(), lines(out));
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
