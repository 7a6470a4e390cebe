// SPDX-License-Identifier: Apache-2.0
// Fuzz targets, one a format that comes from outside. One program has them all; its environment's
// VKFORMER_FUZZ names the one that it is. Whatever the bytes, what reads them gives what they say
// or throws Error, and keeps to its memory: 64 MiB beyond what it was given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace vkf {

class Device;

}  // namespace vkf

namespace vkf::fuzz {

using Bytes = std::span<const std::byte>;

/// Makes a target known; it lives as long as the program.
struct Target {
    Target(const char* name, void (*read)(Bytes));

    const char* name;
    /// May throw Error.
    void (*read)(Bytes);
    const Target* next;
};

/// The target of that name, which fail() names from now on; null: there is none.
const Target* choose_target(std::string_view name);
/// All names, each with a space before it.
std::string target_names();

/// Memory that reading an input may take beyond the input's own size.
constexpr std::int64_t kMostBeyond = 64 << 20;

inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Ends the program, saying what is wrong.
[[noreturn]] void fail(const std::string& what);
inline void require(bool right, const char* what) {
    if (!right) {
        fail(what);
    }
}

/// A folder of this process's own, in memory where there is /dev/shm, gone at the end.
const std::filesystem::path& folder();
/// Writes a file whole.
void write(const std::filesystem::path& path, Bytes bytes);

/// The device that what is read is for.
const Device& device();

}  // namespace vkf::fuzz
