// SPDX-License-Identifier: Apache-2.0
// Modules of SPIR-V, instruction by instruction.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf::test {

using Words = std::vector<std::uint32_t>;

/// The first word of an instruction of so many words.
inline std::uint32_t op(std::uint32_t words, std::uint32_t code) { return words << 16 | code; }

/// A module whose ids are below 200.
inline Words module_of(const std::vector<Words>& instructions) {
    Words out = {0x07230203, 0x00010300, 0, 200, 0};
    for (const Words& i : instructions) {
        out.insert(out.end(), i.begin(), i.end());
    }
    return out;
}

}  // namespace vkf::test
