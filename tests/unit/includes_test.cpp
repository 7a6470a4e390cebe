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

#include "tests/unit/text.h"

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
        const auto files = with(compile, {"ops", "models/files"});
        const auto blocks = with(layers, {"models/files", "models/blocks"});
        const auto families = with(blocks, {"models/families"});
        const auto models = with(families, {"parallel", "runtime/compile", "runtime/device", "models"});
        return std::vector<Room>{{"shaders", {}},
                                 {"runtime/base", {}},
                                 {"parallel", base},
                                 {"runtime/graph", with(base, {"shaders"})},
                                 {"runtime/compile", graph},
                                 {"runtime/device", with(compile, {"parallel"})},
                                 {"ops", compile},
                                 {"layers", layers},
                                 {"models/files", files},
                                 {"models/blocks", blocks},
                                 {"models/families", families},
                                 {"models", models},
                                 {"train", with(models, {"train"})},
                                 {"doctor", with(layers, {"parallel", "runtime/compile", "runtime/device"})},
                                 {"c", with(models, {"train"})},
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

/// The name behind one #include, and whether it stands in <>.
struct IncludedName {
    std::string name;
    bool in_angles;
};

std::vector<IncludedName> names_in(const fs::path& path) {
    static const std::regex line(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
    std::vector<IncludedName> found;
    std::ifstream in(path);
    REQUIRE(in);
    for (std::string text; std::getline(in, text);) {
        std::smatch match;
        if (std::regex_search(text, match, line)) {
            found.push_back({match[2], match[1] == "<"});
        }
    }
    return found;
}

/// The headers that the build makes: vkformer.h, and of each shader its words, its variants' words
/// and its text.
std::set<std::string> made_by_the_build(const fs::path& source) {
    static const std::regex variant(R"(^//! variant (\w+))");
    std::set<std::string> made{"vkformer/vkformer.h"};
    for (const auto& entry : fs::directory_iterator(source / "shaders")) {
        if (entry.path().extension() != ".comp") {
            continue;
        }
        const std::string stem = entry.path().stem().string();
        made.insert({stem + ".spv.h", stem + ".glsl.h"});
        std::ifstream in(entry.path());
        for (std::string text; std::getline(in, text);) {
            std::smatch match;
            if (std::regex_search(text, match, variant)) {
                made.insert(match[1].str() + ".spv.h");
            }
        }
    }
    return made;
}

/// Gives every project file that a file includes, by its path from the source folder. Headers that
/// the build makes are left out; "a includes b" is added to `lost` where there is no other b.
std::vector<std::string> includes_of(const fs::path& source, const std::string& file, std::vector<std::string>& lost) {
    static const std::set<std::string> made = made_by_the_build(source);
    std::vector<std::string> found;
    for (const IncludedName& include : names_in(source / file)) {
        bool here = false;
        for (const fs::path& folder : {source / fs::path(file).parent_path(), source, source / "shaders"}) {
            const fs::path path = (folder / include.name).lexically_normal();
            if (fs::is_regular_file(path)) {
                found.push_back(path.lexically_relative(source).generic_string());
                here = true;
                break;
            }
        }
        if (!here && !include.in_angles && made.count(include.name) == 0) {
            lost.push_back(file + " includes " + include.name);
        }
    }
    return found;
}

/// A header and the source of the same name are one file here.
std::string stem_of(const std::string& file) { return file.substr(0, file.rfind('.')); }

using Includes = std::map<std::string, std::vector<std::string>>;

Includes read_all(const fs::path& source, std::vector<std::string>& lost) {
    Includes all;
    for (const char* top : {"shaders", "runtime", "ops", "layers", "models", "train", "doctor", "c", "text"}) {
        for (const auto& entry : fs::recursive_directory_iterator(source / top)) {
            const std::string extension = entry.path().extension().string();
            if (extension == ".h" || extension == ".cpp" || extension == ".in" || extension == ".comp" ||
                extension == ".glsl") {
                const std::string file = entry.path().lexically_relative(source).generic_string();
                all[file] = includes_of(source, file, lost);
            }
        }
    }
    return all;
}

/// Gives "a includes b" for each include that leads to a room above.
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

/// Gives "a -> b -> c" for each file of a block or a family that gets to a device through what it
/// includes.
std::vector<std::string> ways_to_a_device(const Includes& all) {
    std::vector<std::string> wrong;
    for (const auto& [file, unused] : all) {
        if (room_of(file) != "models/blocks" && room_of(file) != "models/families") {
            continue;
        }
        std::map<std::string, std::string> from{{file, ""}};  // how each was reached
        std::vector<std::string> open{file};
        while (!open.empty()) {
            const std::string at = open.back();
            open.pop_back();
            if (room_of(at) == "runtime/device") {
                std::string way = at;
                for (std::string by = from[at]; !by.empty(); by = from[by]) {
                    way = by + " -> " + way;
                }
                wrong.push_back(way);
                break;
            }
            const auto found = all.find(at);
            if (found == all.end()) {
                continue;
            }
            for (const std::string& next : found->second) {
                if (from.emplace(next, at).second) {
                    open.push_back(next);
                }
            }
        }
    }
    return wrong;
}

/// Lists what a sample includes beside public headers, other libraries' and its own files.
std::vector<std::string> not_for_samples(const fs::path& source, const fs::path& folder) {
    std::vector<std::string> wrong;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        static const std::set<std::string> read{".h", ".cpp", ".comp", ".vert", ".frag"};
        if (read.count(entry.path().extension().string()) == 0) {
            continue;
        }
        for (const IncludedName& include : names_in(entry.path())) {
            const std::string& name = include.name;
            const bool own = fs::exists(folder / name) && name.find("..") == std::string::npos;
            const bool shader = name.ends_with(".h") && fs::exists(folder / name.substr(0, name.size() - 2));
            const bool shared =
                folder.parent_path() == source / "samples" && (name == "../arguments.h" || name == "../dates_config.h");
            const bool good = include.in_angles ? !fs::exists(source / name) && !name.starts_with("vkformer/advanced/")
                                                : own || shader || shared;
            if (!good) {
                wrong.push_back(entry.path().lexically_relative(source).generic_string() + " includes " + name);
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
    std::vector<std::string> lost;
    const Includes all = read_all(VKFORMER_SOURCE_DIR, lost);
    CHECK(all.size() > 100);
    CHECK(all.count("models/families/families.cpp.in") == 1);
    CHECK_MESSAGE(lost.empty(), lines(lost));
    const std::vector<std::string> up = arrows_up(all);
    CHECK_MESSAGE(up.empty(), lines(up));
    const std::vector<std::string> circle = cycle(all);
    CHECK_MESSAGE(circle.empty(), lines(circle));
    const std::vector<std::string> ways = ways_to_a_device(all);
    CHECK_MESSAGE(ways.empty(), lines(ways));
}

TEST_CASE("includes: samples use what is installed, their own files, and what all read arguments with") {
    const fs::path source = VKFORMER_SOURCE_DIR;
    int samples = 0;
    for (const auto& entry : fs::directory_iterator(source / "samples")) {
        if (entry.is_directory()) {
            const std::vector<std::string> wrong = not_for_samples(source, entry.path());
            CHECK_MESSAGE(wrong.empty(), lines(wrong));
            ++samples;
        }
    }
    CHECK(samples > 5);
    // the check sees what is not for them
    CHECK(not_for_samples(source, source / "models/families").size() > 10);
}

TEST_CASE("includes: the checks see an arrow up, a way around, a file that is not there and a circle") {
    CHECK(arrows_up({{"runtime/graph/a.h", {"runtime/device/b.h"}}}).size() == 1);
    CHECK(arrows_up({{"runtime/device/b.h", {"runtime/graph/a.h"}}}).empty());
    std::vector<std::string> lost;
    includes_of(VKFORMER_SOURCE_DIR, "samples/embed/renderer.cpp", lost);  // shaders of its own
    CHECK(lost.size() == 3);
    CHECK(arrows_up({{"elsewhere/b.h", {"runtime/graph/a.h"}}}).size() == 1);
    CHECK(arrows_up({{"models/blocks/a.h", {"runtime/device/b.h"}}}).size() == 1);
    CHECK(arrows_up({{"models/families/a.cpp", {"runtime/compile/b.h"}}}).size() == 1);
    CHECK(ways_to_a_device({{"models/blocks/a.h", {"models/files/b.h"}}, {"models/files/b.h", {"runtime/device/c.h"}}})
              .front() == "models/blocks/a.h -> models/files/b.h -> runtime/device/c.h");
    CHECK(ways_to_a_device({{"models/b.h", {"runtime/device/c.h"}}}).empty());
    CHECK(cycle({{"ops/a.h", {"ops/b.h"}}, {"ops/b.cpp", {"ops/c.h"}}, {"ops/c.cpp", {"ops/a.h"}}}).size() == 4);
    CHECK(cycle({{"ops/a.h", {"ops/b.h"}}, {"ops/b.cpp", {"ops/b.h", "ops/c.h"}}, {"ops/c.cpp", {"ops/c.h"}}}).empty());
}
