// SPDX-License-Identifier: Apache-2.0
// How the words of the sources and of the README are laid out.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace fs = std::filesystem;

namespace {

const std::size_t kWidest = 100;

/// Counts the characters, not the bytes, of a line of UTF-8.
std::size_t width(const std::string& line) {
    return static_cast<std::size_t>(
        std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// The mark that begins a comment in this file, empty where none is known.
std::string mark(const fs::path& file) {
    static const std::set<std::string> slashes{".h", ".cpp", ".c", ".comp", ".glsl", ".vert", ".frag"};
    const std::string extension = file.extension().string();
    if (slashes.count(extension) != 0) {
        return "//";
    }
    std::ifstream in(file);
    std::string first;
    std::getline(in, first);
    const bool script = first.starts_with("#!") || file.filename() == "CMakeLists.txt";
    return script || extension == ".cmake" || extension == ".py" || extension == ".sh" ? "#" : "";
}

}  // namespace

TEST_SUITE("comments") {
    TEST_CASE("comments: no line of one is wider than 100 characters") {
        const fs::path root(VKFORMER_SOURCE_DIR);
        int read = 0;
        for (const char* room : {"runtime", "ops", "layers", "models", "train", "c", "text", "shaders", "samples",
                                 "tests", "tools", "python", "cmake", ".ci", "CMakeLists.txt"}) {
            const auto check = [&](const fs::path& file) {
                const std::string begin = mark(file);
                if (begin.empty()) {
                    return;
                }
                ++read;
                // a comment by itself, or after code and two spaces as clang-format has it
                const std::regex comment("^\\s*" + begin + "[/<]*( |$)|;  " + begin + "|[,({})]  " + begin);
                std::ifstream in(file);
                std::string line;
                for (int number = 1; std::getline(in, line); ++number) {
                    if (width(line) > kWidest && std::regex_search(line, comment)) {
                        FAIL_CHECK(file.lexically_relative(root).string()
                                   << ":" << number << ": " << width(line) << " characters: " << line);
                    }
                }
            };
            if (fs::is_regular_file(root / room)) {
                check(root / room);
                continue;
            }
            for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / room)) {
                if (entry.is_regular_file()) {
                    check(entry.path());
                }
            }
        }
        CHECK(read > 300);
    }

    TEST_CASE("README: the complete program is samples/layer, and it all has 150 lines at most") {
        const auto whole = [](const char* name) {
            std::ifstream in(fs::path(VKFORMER_SOURCE_DIR) / name);
            return std::string(std::istreambuf_iterator<char>(in), {});
        };
        const std::string readme = whole("README.md"), sample = whole("samples/layer/main.cpp");
        const std::size_t licence_ends = sample.find('\n') + 1;
        REQUIRE(sample.size() > licence_ends);
        CHECK(readme.find("```cpp\n" + sample.substr(licence_ends) + "```\n") != std::string::npos);
        CHECK(std::count(readme.begin(), readme.end(), '\n') <= 150);
    }
}
