// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <system_error>

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_to_write(const fs::path& path, const std::string& reason) {
    throw std::runtime_error("cannot write " + path.string() + ": " + reason);
}

std::string last_error() { return std::generic_category().message(errno); }

/// The program's own output that is this file; null where none is.
std::FILE* own_output(const fs::path& path) {
    std::error_code none;
    return fs::equivalent(path, "/dev/stdout", none)   ? stdout
           : fs::equivalent(path, "/dev/stderr", none) ? stderr
                                                       : nullptr;
}

/// The file that is replaced by a rename, or made: what stands behind links, which stay. Nothing
/// where it is written in place: what is printed, is no regular file, or is a link in /proc, which
/// stands for a file that is open.
std::optional<fs::path> replaced(const fs::path& path) {
    constexpr int kMostLinks = 40;
    std::error_code none;
    if (own_output(path) || (fs::exists(path, none) && !fs::is_regular_file(path, none))) {
        return std::nullopt;
    }
    fs::path file = path;
    for (int links = 0; fs::is_symlink(fs::symlink_status(file, none)); ++links) {
        if (links == kMostLinks) {
            fail_to_write(path, "it is a link to itself");
        }
        if (fs::canonical(file.parent_path() / ".", none).string().starts_with("/proc/")) {
            return std::nullopt;
        }
        file = file.parent_path() / fs::read_symlink(file, none);
    }
    return file;
}

/// Where the text is written first.
fs::path beside(const fs::path& file) {
    fs::path part = file;
    part += ".part";
    return part;
}

}  // namespace

void require_writable(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        fail_to_write(path, "it is a directory");
    }
    const std::optional<fs::path> file = replaced(path);
    if (!file) {
        return;
    }
    const fs::path part = beside(*file);
    if (!std::ofstream(part)) {
        fail_to_write(path, last_error());
    }
    fs::remove(part, ignored);
}

bool is_replaced(const fs::path& path) { return replaced(path).has_value(); }

void write_file(const fs::path& path, const std::string& text) {
    if (std::FILE* own = own_output(path)) {  // behind what was printed
        if (std::fputs(text.c_str(), own) < 0 || std::fflush(own) != 0) {
            fail_to_write(path, last_error());
        }
        return;
    }
    const std::optional<fs::path> file = replaced(path);
    const fs::path part = file ? beside(*file) : path;
    std::ofstream stream(part);
    stream << text;
    stream.close();
    std::error_code error;
    if (!stream) {
        const std::string reason = last_error();
        if (file) {
            fs::remove(part, error);
        }
        fail_to_write(path, reason);
    }
    if (file) {
        fs::rename(part, *file, error);
        if (error) {
            fail_to_write(path, error.message());
        }
    }
}
