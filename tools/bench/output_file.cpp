// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_to_write(const fs::path& path, const std::string& reason) {
    throw std::runtime_error("cannot write " + path.string() + ": " + reason);
}

std::string last_error() { return std::generic_category().message(errno); }

/// Whether it is replaced by a rename: a regular file, or nothing yet.
bool is_replaced(const fs::path& path) {
    std::error_code ignored;
    return !fs::exists(path, ignored) || fs::is_regular_file(path, ignored);
}

/// The file behind links: these stay.
fs::path behind_links(const fs::path& path) {
    std::error_code missing;
    const fs::path file = fs::canonical(path, missing);
    return missing ? path : file;
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
    if (!is_replaced(path)) {
        return;
    }
    const fs::path part = beside(behind_links(path));
    if (!std::ofstream(part)) {
        fail_to_write(path, last_error());
    }
    fs::remove(part, ignored);
}

void write_file(const fs::path& path, const std::string& text) {
    const bool replaced = is_replaced(path);
    const fs::path file = replaced ? behind_links(path) : path;
    const fs::path part = replaced ? beside(file) : file;
    std::ofstream stream(part);
    stream << text;
    stream.close();
    std::error_code error;
    if (!stream) {
        const std::string reason = last_error();
        if (replaced) {
            fs::remove(part, error);
        }
        fail_to_write(path, reason);
    }
    if (replaced) {
        fs::rename(part, file, error);
        if (error) {
            fail_to_write(path, error.message());
        }
    }
}
