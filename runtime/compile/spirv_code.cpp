// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_code.h"

namespace vkf {

std::vector<std::uint32_t> SpirvCode::words() const {
    if (packed_.words == 0) {
        return {plain_.begin(), plain_.end()};
    }
    std::vector<std::uint32_t> words(packed_.words);
    const std::span<const std::uint8_t> lengths = packed_.bytes.first((words.size() + 3) / 4);
    const std::uint8_t* next = packed_.bytes.data() + lengths.size();
    for (std::size_t i = 0; i < words.size(); ++i) {
        const unsigned length = 1 + (lengths[i / 4] >> (6 - 2 * (i % 4)) & 3u);
        for (unsigned byte = 0; byte < length; ++byte) {
            words[i] |= std::uint32_t{*next++} << (8 * byte);
        }
    }
    return words;
}

}  // namespace vkf
