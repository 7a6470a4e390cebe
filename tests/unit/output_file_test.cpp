// SPDX-License-Identifier: Apache-2.0
// The files of results that tools/bench writes.
#include "tools/bench/output_file.h"

#include <doctest/doctest.h>

#ifndef _WIN32
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>

namespace fs = std::filesystem;

namespace {

struct Folder {
    fs::path path = fs::temp_directory_path() / ("vkformer-output-" + std::to_string(std::random_device{}()));

    Folder() { fs::create_directories(path / "data"); }
    ~Folder() { fs::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
};

std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& text) {
    require_writable(file);
    write_file(file, text);
}

}  // namespace

TEST_CASE("output file: links stay, also where nothing is behind them yet") {
    const Folder folder;
    const fs::path there = folder.path / "there", none = folder.path / "none", loop = folder.path / "loop";
    std::ofstream(folder.path / "data" / "there") << "before";
    for (const fs::path& link : {there, none}) {
        fs::create_symlink(fs::path("data") / link.filename(), link);
        CHECK(is_replaced(link));
        write(link, "text");
        CHECK(fs::is_symlink(link));
        CHECK(text_of(folder.path / "data" / link.filename()) == "text");
    }
    fs::create_symlink("loop", loop);
    CHECK_THROWS_AS(require_writable(loop), std::runtime_error);
    CHECK_THROWS_AS(require_writable(folder.path), std::runtime_error);
    CHECK_THROWS_AS(require_writable(folder.path / "no" / "file"), std::runtime_error);
    CHECK(std::distance(fs::directory_iterator(folder.path / "data"), {}) == 2);
}

TEST_CASE("output file: a file that is open is written in place") {
    const Folder folder;
    const fs::path file = folder.path / "open", link = folder.path / "link";
    const int opened = open(file.c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(opened >= 0);
    fs::create_symlink("/proc/self/fd/" + std::to_string(opened), link);
    if (fs::exists(link)) {  // there is a /proc
        CHECK(!is_replaced(link));
        write(link, "text");
        CHECK(fs::is_symlink(link));
        char text[5] = {};
        CHECK(pread(opened, text, 4, 0) == 4);
        CHECK(std::string(text) == "text");
    }
    close(opened);
}

TEST_CASE("output file: what is the program's own output is printed, in its order") {
    const Folder folder;
    const fs::path file = folder.path / "out", link = folder.path / "link";
    fs::create_symlink("/proc/self/fd/1", link);
    std::fflush(stdout);
    const int kept = dup(1), out = open(file.c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(kept >= 0);
    REQUIRE(out >= 0);
    dup2(out, 1);
    const bool linked = fs::exists(link), replaced = is_replaced(link);
    std::printf("row\n");
    if (linked) {
        write_file(link, "text\n");
    }
    write_file(file, "more\n");
    std::printf("end\n");
    std::fflush(stdout);
    dup2(kept, 1);
    close(kept);
    close(out);
    CHECK(text_of(file) == (linked ? "row\ntext\nmore\nend\n" : "row\nmore\nend\n"));
    CHECK(replaced == !linked);
    CHECK(fs::is_symlink(link));
}
#endif
