// SPDX-License-Identifier: Apache-2.0
// Pictures as files, and what can be said about them without looking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

/// Writes rows of RGBA as PNG. Throws naming the file.
void write_png(const std::filesystem::path& path, std::uint32_t width, std::uint32_t height,
               std::span<const std::byte> pixels);

/// A number that changes with any bit of the pixels, and with what it was before (FNV-1a).
std::uint64_t digest(std::span<const std::byte> pixels, std::uint64_t before);
constexpr std::uint64_t kDigestOfNothing = 0xcbf29ce484222325;

/// Share of the pixels that are clearly brighter than the background.
double bright_share(std::span<const std::byte> pixels);
