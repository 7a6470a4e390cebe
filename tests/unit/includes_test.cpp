// SPDX-License-Identifier: Apache-2.0
// The rooms of docs/architecture.md: what may include what.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/lines.h"

using vkf::test::lines;

namespace fs = std::filesystem;

namespace {

/// A room, and the rooms that its files may include beside their own.
struct Room {
    const char* name;
    std::vector<std::string> below;
};

const std::vector<Room>& rooms() {
    static const std::vector<Room> all = [] {
        const std::vector<std::string> base{"runtime/base"};
        const auto with = [](std::vector<std::string> a, const std::vector<std::string>& b) {
            a.insert(a.end(), b.begin(), b.end());
            return a;
        };
        const auto graph = with(base, {"shaders", "runtime/graph"});
        const auto compile = with(graph, {"runtime/compile"});
        const auto layers = with(graph, {"ops", "layers"});
        const auto files = with(with(compile, {"runtime/device"}), {"ops", "models/files"});
        const auto blocks = with(files, {"layers", "models/blocks"});
        const auto families = with(blocks, {"models/families"});
        const auto models = with(families, {"models"});
        return std::vector<Room>{{"shaders", {}},
                                 {"runtime/base", {}},
                                 {"runtime/graph", with(base, {"shaders"})},
                                 {"runtime/compile", graph},
                                 {"runtime/device", compile},
                                 {"ops", compile},
                                 {"layers", layers},
                                 {"models/files", files},
                                 {"models/blocks", blocks},
                                 {"models/families", families},
                                 {"models", models},
                                 {"c", models},
                                 {"text", base}};
    }();
    return all;
}

/// The room of a file, "" where it is of none.
std::string room_of(const std::string& file) {
    std::string best;
    for (const Room& room : rooms()) {
        const std::string name = room.name;
        if (file.starts_with(name + "/") && name.size() > best.size()) {
            best = name;
        }
    }
    return best;
}

/// Every project file that a file includes, by its path from the source folder. Headers that the
/// build makes are left out.
std::vector<std::string> includes_of(const fs::path& source, const std::string& file) {
    static const std::regex line("^#include \"([^\"]+)\"");
    std::vector<std::string> found;
    std::ifstream in(source / file);
    REQUIRE(in);
    for (std::string text; std::getline(in, text);) {
        std::smatch match;
        if (!std::regex_search(text, match, line)) {
            continue;
        }
        for (const fs::path& folder : {source / fs::path(file).parent_path(), source, source / "shaders"}) {
            const fs::path path = (folder / match[1].str()).lexically_normal();
            if (fs::exists(path)) {
                found.push_back(path.lexically_relative(source).generic_string());
                break;
            }
        }
    }
    return found;
}

/// A header and the source of the same name are one file here.
std::string stem_of(const std::string& file) { return file.substr(0, file.rfind('.')); }

using Includes = std::map<std::string, std::vector<std::string>>;

Includes read_all(const fs::path& source) {
    Includes all;
    for (const char* top : {"shaders", "runtime", "ops", "layers", "models", "c", "text"}) {
        for (const auto& entry : fs::recursive_directory_iterator(source / top)) {
            const std::string extension = entry.path().extension().string();
            if (extension == ".h" || extension == ".cpp" || extension == ".comp" || extension == ".glsl") {
                const std::string file = entry.path().lexically_relative(source).generic_string();
                all[file] = includes_of(source, file);
            }
        }
    }
    return all;
}

/// "a includes b" for each include that leads to a room above.
std::vector<std::string> arrows_up(const Includes& all) {
    std::vector<std::string> wrong;
    for (const auto& [file, included] : all) {
        const std::string room = room_of(file);
        const auto here = std::find_if(rooms().begin(), rooms().end(), [&](const Room& r) { return r.name == room; });
        for (const std::string& other : included) {
            const std::string there = room_of(other);
            const bool below =
                here != rooms().end() && std::find(here->below.begin(), here->below.end(), there) != here->below.end();
            if (room.empty() || (there != room && !below)) {
                wrong.push_back(file + " includes " + other);
            }
        }
    }
    return wrong;
}

/// The files of a cycle, in order; empty where there is none.
std::vector<std::string> cycle(const Includes& all) {
    std::map<std::string, std::set<std::string>> next;
    for (const auto& [file, included] : all) {
        for (const std::string& other : included) {
            if (stem_of(other) != stem_of(file)) {
                next[stem_of(file)].insert(stem_of(other));
            }
        }
    }
    std::map<std::string, int> state;  // 1: on the way, 2: done
    std::vector<std::string> way, found;
    const std::function<bool(const std::string&)> visit = [&](const std::string& stem) {
        if (state[stem] == 2) {
            return false;
        }
        way.push_back(stem);
        if (state[stem] == 1) {
            found.assign(std::find(way.begin(), way.end(), stem), way.end());
            return true;
        }
        state[stem] = 1;
        for (const std::string& other : next[stem]) {
            if (visit(other)) {
                return true;
            }
        }
        state[stem] = 2;
        way.pop_back();
        return false;
    };
    for (const auto& [stem, others] : std::map(next)) {
        if (visit(stem)) {
            break;
        }
    }
    return found;
}

}  // namespace

TEST_CASE("includes: no arrow leads up between rooms, and no files include each other in a circle") {
    const Includes all = read_all(VKFORMER_SOURCE_DIR);
    CHECK(all.size() > 100);
    const std::vector<std::string> up = arrows_up(all);
    CHECK_MESSAGE(up.empty(), lines(up));
    const std::vector<std::string> circle = cycle(all);
    CHECK_MESSAGE(circle.empty(), lines(circle));
}

TEST_CASE("includes: the check sees an arrow up and a circle") {
    CHECK(arrows_up({{"runtime/graph/a.h", {"runtime/device/b.h"}}}).size() == 1);
    CHECK(arrows_up({{"runtime/device/b.h", {"runtime/graph/a.h"}}}).empty());
    CHECK(arrows_up({{"elsewhere/b.h", {"runtime/graph/a.h"}}}).size() == 1);
    CHECK(cycle({{"ops/a.h", {"ops/b.h"}}, {"ops/b.cpp", {"ops/c.h"}}, {"ops/c.cpp", {"ops/a.h"}}}).size() == 4);
    CHECK(cycle({{"ops/a.h", {"ops/b.h"}}, {"ops/b.cpp", {"ops/b.h", "ops/c.h"}}, {"ops/c.cpp", {"ops/c.h"}}}).empty());
}
