// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <system_error>

namespace fs = std::filesystem;

namespace {

std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) {
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return out + "'";
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& environment, const fs::path& program,
                      const std::vector<std::string>& arguments) {
#if defined(_WIN32)
    (void)environment, (void)arguments;
    throw std::runtime_error(program.string() + " is not measured on Windows: its environment is set by a POSIX shell");
#else
    std::string command = "exec env";
    for (const std::string& variable : environment) {
        command += ' ' + quoted(variable);
    }
    command += ' ' + quoted(program.string());
    for (const std::string& argument : arguments) {
        command += ' ' + quoted(argument);
    }
    const auto start = std::chrono::steady_clock::now();
    std::FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) {
        throw std::runtime_error("cannot start " + program.string());
    }
    ChildResult result;
    std::array<char, 4096> part{};
    while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe)) {
        result.output.append(part.data(), n);
    }
    const int status = pclose(pipe);
    result.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (status != 0) {
        throw std::runtime_error(program.string() + " ended with status " + std::to_string(status) +
                                 "; what it had to say is on standard error. Its output: " + result.output);
    }
    return result;
#endif
}

fs::path own_program() {
#if defined(__linux__)
    return fs::read_symlink("/proc/self/exe");
#else
    throw std::runtime_error("starts are measured on Linux alone: it tells a program where its own file is");
#endif
}

TemporaryFolder::TemporaryFolder() {
    std::random_device random;
    path_ = fs::temp_directory_path() / ("vkformer-bench-" + std::to_string(random()));
    fs::create_directories(path_);
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}
