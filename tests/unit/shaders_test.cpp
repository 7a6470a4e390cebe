// SPDX-License-Identifier: Apache-2.0
// What every shader holds to that no compiler checks.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "tests/unit/text.h"

using vkf::test::lines;

namespace fs = std::filesystem;

namespace {

/// Specialization constants of a shader, by the id that they are declared with.
std::vector<std::string> ids_of(const std::string& shader) {
    static const std::regex declared(R"(\bconstant_id = (\w+)\))");
    std::vector<std::string> ids;
    for (std::sregex_iterator i(shader.begin(), shader.end(), declared), end; i != end; ++i) {
        ids.push_back((*i)[1].str());
    }
    return ids;
}

bool is_number(const std::string& id) { return id.find_first_not_of("0123456789") == std::string::npos; }

}  // namespace

TEST_CASE("shaders: specialization constants have the ids that a header shared with C++ names") {
    std::size_t constants = 0;
    std::vector<std::string> numbered;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(VKFORMER_SOURCE_DIR "/shaders")) {
        const std::string extension = entry.path().extension().string();
        if (extension != ".comp" && extension != ".glsl") {
            continue;
        }
        std::ifstream in(entry.path());
        for (const std::string& id : ids_of({std::istreambuf_iterator<char>(in), {}})) {
            ++constants;
            if (is_number(id)) {
                numbered.push_back(entry.path().filename().string() + ": " + id);
            }
        }
    }
    CHECK(constants > 100);
    CHECK_MESSAGE(numbered.empty(), lines(numbered));
}

TEST_CASE("shaders: the check tells names from numbers") {
    const std::vector<std::string> ids =
        ids_of("layout(constant_id = kRopeSpecHalf) const uint kHalf = 0;\nlayout(constant_id = 12) const uint k = 0;");
    REQUIRE(ids.size() == 2);
    CHECK_FALSE(is_number(ids[0]));
    CHECK(is_number(ids[1]));
}
