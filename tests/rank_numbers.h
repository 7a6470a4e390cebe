// SPDX-License-Identifier: Apache-2.0
// What ranks sum in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vkf::test {

/// Numbers of a rank, of magnitudes that make the order of a sum matter.
inline std::vector<float> numbers_of(int rank, std::size_t count) {
    std::vector<float> x(count);
    std::uint32_t state = 12345u + static_cast<std::uint32_t>(rank) * 977u;
    for (float& v : x) {
        state = state * 1664525u + 1013904223u;
        v = static_cast<float>(static_cast<std::int32_t>(state)) * 1e-9f * static_cast<float>(1 + state % 1000);
    }
    return x;
}

}  // namespace vkf::test
