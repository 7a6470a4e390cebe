// SPDX-License-Identifier: Apache-2.0
// Bytes that may be of a mapped file, which somebody may shorten at any time: reading them as
// memory would end the process then.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace vkf {

/// Copies as memcpy() does. Bytes of a MappedFile are read from the file: throws Error naming it
/// where they are gone.
void copy_bytes(std::span<const std::byte> from, std::byte* to);

/// Gives the bytes to `take`, one part after the other, each but the last a multiple of `multiple`
/// bytes: copies where they are of a MappedFile, else all at once and in place. Throws as
/// copy_bytes() does.
void in_parts(std::span<const std::byte> bytes, std::size_t multiple,
              const std::function<void(std::span<const std::byte>)>& take);

}  // namespace vkf
