// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_code.h"

#include "runtime/base/error.h"
#include "runtime/compile/inflate.h"

namespace vkf {

std::vector<std::uint32_t> SpirvCode::words() const {
    if (packed_.words == 0) {
        return {plain_.begin(), plain_.end()};
    }
    std::vector<std::uint32_t> words;
    // a deflated byte stands for 1032 at most, so no memory is asked for in vain
    const bool possible = std::uint64_t{packed_.words} * sizeof(std::uint32_t) / 1032 <= packed_.bytes.size();
    words.resize(possible ? packed_.words : 0);
    if (!possible || !inflate(packed_.bytes, std::as_writable_bytes(std::span(words)))) {
        throw Error("the packed SPIR-V of " + std::to_string(packed_.words) + " words is damaged");
    }
    return words;
}

}  // namespace vkf
