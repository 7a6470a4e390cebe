// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/inflate.h"

#include <algorithm>
#include <limits>

#include "runtime/base/error.h"

// Only its zlib decoder is used, which comes with PNG. A host may have a stb_image of its own.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#include <stb_image.h>

namespace vkf {

bool inflate(std::span<const std::uint8_t> packed, std::span<std::byte> out) {
    if (std::max(out.size(), packed.size()) > std::size_t{std::numeric_limits<int>::max()}) {
        return false;
    }
    const int got =
        stbi_zlib_decode_noheader_buffer(reinterpret_cast<char*>(out.data()), static_cast<int>(out.size()),
                                         reinterpret_cast<const char*>(packed.data()), static_cast<int>(packed.size()));
    return got >= 0 && static_cast<std::size_t>(got) == out.size();
}

std::string PackedText::text() const {
    std::string out(size, '\0');
    if (!inflate(bytes, std::as_writable_bytes(std::span(out)))) {
        throw Error("the packed text of " + std::to_string(size) + " bytes is damaged");
    }
    return out;
}

}  // namespace vkf
