// SPDX-License-Identifier: Apache-2.0
// What the library embeds deflated (RFC 1951), as the scripts under cmake/ write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vkf {

/// Fills all of `out` from deflated bytes. False where they are damaged, or give another number of
/// bytes.
bool inflate(std::span<const std::uint8_t> packed, std::span<std::byte> out);

/// A shader's text. cmake/ShaderText.cmake writes it.
struct PackedText {
    std::uint32_t size;
    std::span<const std::uint8_t> bytes;

    /// Throws Error where the bytes are damaged.
    std::string text() const;
};

}  // namespace vkf
