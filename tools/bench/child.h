// SPDX-License-Identifier: Apache-2.0
// Other programs, timed from outside.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

struct ChildResult {
    std::string output;  ///< standard output
    double ms = 0;       ///< from start to end
};

/// Runs a program with variables added to the environment ("NAME=value"). Throws when it cannot be
/// run or fails.
ChildResult run_child(const std::vector<std::string>& environment, const std::filesystem::path& program,
                      const std::vector<std::string>& arguments);

/// The path of this program's own file. Throws off Linux.
std::filesystem::path own_program();

/// A fresh folder, removed with its contents at the end.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};
