// SPDX-License-Identifier: Apache-2.0
// A file of results. What it held before is there until the new text takes its place as a whole.
#pragma once

#include <filesystem>
#include <string>

/// Throws std::runtime_error, with the path and the reason, where write_file could not write there.
/// The file is neither made nor changed. What is no regular file, a pipe say, is not tried.
void require_writable(const std::filesystem::path& path);

/// True where a text takes the place of the one before; where not, each comes behind the last.
bool is_replaced(const std::filesystem::path& path);

/// Writes the text beside the file and renames that; links stay. Writes into what is no regular
/// file, and prints the text where that is the program's own output. Throws std::runtime_error,
/// with the path and the reason, where it cannot.
void write_file(const std::filesystem::path& path, const std::string& text);
