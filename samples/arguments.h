// SPDX-License-Identifier: Apache-2.0
// What the samples ask of a command line beyond CLI11: numbers are numbers. And what they ask of
// results: they are written whole, or there is an error.
#pragma once

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

/// Reads the whole of a text as a number that T holds: a finite one, without a plus or spaces.
template <typename T>
bool read_number(const std::string& text, T& to) {
    const char* const end = text.data() + text.size();
    if constexpr (std::is_floating_point_v<T>) {
        if (text.empty() || text.starts_with('+') || text.find_first_not_of("+-.0123456789eE") != std::string::npos) {
            return false;
        }
        char* stopped = nullptr;
        to = std::is_same_v<T, float> ? static_cast<T>(std::strtof(text.c_str(), &stopped))
                                      : static_cast<T>(std::strtod(text.c_str(), &stopped));
        const bool zero = text.substr(0, text.find_first_of("eE")).find_first_of("123456789") == std::string::npos;
        return stopped == end && std::isfinite(to) && (to != 0 || zero);
    } else {
        const auto [stopped, error] = std::from_chars(text.data(), end, to);
        return error == std::errc() && stopped == end;
    }
}

/// What is wrong with a text that is to be a T; nothing where it is one.
template <typename T>
std::string wrong_number(const std::string& text) {
    if (T number{}; read_number(text, number)) {
        return {};
    }
    if constexpr (std::is_floating_point_v<T>) {
        return text + " is no finite number, or too near to 0";
    } else {
        return text + " is no whole number between " + std::to_string(std::numeric_limits<T>::min()) + " and " +
               std::to_string(std::numeric_limits<T>::max());
    }
}

template <typename T>
struct NumberIn {
    using Type = T;
};
template <template <typename...> typename Holder, typename T, typename... Rest>
struct NumberIn<Holder<T, Rest...>> {  // an optional, or a vector of numbers
    using Type = T;
};

/// Adds an option whose texts are numbers that its own type holds. CLI11 by itself lets some
/// through that wrap around, are empty, infinite or NaN.
template <typename T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& to, const std::string& what) {
    return app.add_option(name, to, what)->check(wrong_number<typename NumberIn<T>::Type>);
}

/// Reads the command line. Where the program ends here, because of --help or a mistake, its exit
/// code, else -1.
template <typename Check>
int parse_arguments(CLI::App& app, int argc, char** argv, const Check& check) {
    try {
        app.parse(argc, argv);
        check();
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 1;  // --help is no failure
    }
    return -1;
}
inline int parse_arguments(CLI::App& app, int argc, char** argv) {
    return parse_arguments(app, argc, argv, [] {});
}

/// Lets `write` write a file beside `path`, which then takes its place: a failure leaves what was
/// there. What is no regular file (a pipe, a terminal, a link) is written where it is.
template <typename Write>
void replace_file(const std::filesystem::path& path, const Write& write) {
    namespace fs = std::filesystem;
    std::error_code code;
    const fs::file_status before = fs::symlink_status(path, code);
    if (fs::exists(before) && !fs::is_regular_file(before)) {
        write(path);
        return;
    }
    fs::path beside = path;
    beside += ".writing-" + std::to_string(std::random_device{}());
    try {
        if (!std::ofstream(beside)) {  // else it would be told by that name
            throw std::runtime_error(path.string() + ": cannot be written");
        }
        write(beside);
        if (fs::exists(before)) {
            fs::permissions(beside, before.permissions(), code);
        }
        fs::rename(beside, path);
    } catch (...) {
        fs::remove(beside, code);
        throw;
    }
}

/// Throws std::runtime_error naming a file that replace_file() could not write, before the work is
/// done that it is to hold.
inline void require_replaceable(const std::filesystem::path& path) {
    namespace fs = std::filesystem;
    std::error_code code;
    const fs::file_status before = fs::symlink_status(path, code);
    if (fs::exists(before) && !fs::is_regular_file(before)) {
        return;
    }
    fs::path beside = path;
    beside += ".writing-" + std::to_string(std::random_device{}());
    const bool opens = bool(std::ofstream(beside));
    fs::remove(beside, code);
    if (!opens) {
        throw std::runtime_error(path.string() + ": cannot be written");
    }
}

/// Replaces a file with these bytes, as above. Throws std::runtime_error naming the file.
inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
    replace_file(path, [&](const std::filesystem::path& to) {
        std::ofstream out(to, std::ios::binary);
        out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        out.close();
        if (!out) {
            throw std::runtime_error(path.string() + ": cannot be written");
        }
    });
}

/// Does `work`; where that throws, `save` runs before the caller gets to know it. Where that throws
/// too, both are told.
template <typename Work, typename Save>
void save_if_it_throws(const Work& work, const Save& save) {
    try {
        work();
    } catch (const std::exception& why) {
        try {
            save();
        } catch (const std::exception& lost) {
            throw std::runtime_error(std::string(why.what()) + "\nWhat was learned could not be saved: " + lost.what());
        }
        throw;
    }
}

/// Writes what is left of the standard output. Throws std::runtime_error if any of it is lost.
inline void end_output() {
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    if (!flushed || std::ferror(stdout) != 0) {
        throw std::runtime_error("standard output: cannot be written" +
                                 (flushed ? std::string() : std::string(": ") + std::strerror(errno)));
    }
}
