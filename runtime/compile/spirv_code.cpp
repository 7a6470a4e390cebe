// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_code.h"

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

namespace {

[[noreturn]] void refuse(const PackedSpirv& packed) {
    throw Error("the packed SPIR-V of " + std::to_string(packed.words) + " words is damaged");
}

}  // namespace

std::vector<std::uint32_t> SpirvCode::words() const {
    if (packed_.words == 0) {
        return {plain_.begin(), plain_.end()};
    }
    const std::uint64_t bytes = std::uint64_t{packed_.words} * sizeof(std::uint32_t);
    const std::uint64_t packed_bytes = packed_.bytes.size();
    // a deflated byte stands for 1032 at most, so no memory is asked for in vain
    if (std::max(bytes, packed_bytes) > std::numeric_limits<int>::max() || bytes / 1032 > packed_bytes) {
        refuse(packed_);
    }
    std::vector<std::uint32_t> words(packed_.words);
    const int got = stbi_zlib_decode_noheader_buffer(reinterpret_cast<char*>(words.data()), static_cast<int>(bytes),
                                                     reinterpret_cast<const char*>(packed_.bytes.data()),
                                                     static_cast<int>(packed_bytes));
    if (got < 0 || static_cast<std::uint64_t>(got) != bytes) {
        refuse(packed_);
    }
    return words;
}

}  // namespace vkf
