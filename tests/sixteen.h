// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits as tests give them to devices and read them back.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/sixteen.h"
#include "tests/tensor.h"

namespace vkf::test {

using Bits = std::vector<std::uint16_t>;

inline constexpr DType kSixteen[] = {DType::f16, DType::bf16};

/// Whole numbers that both types hold.
inline Tensor whole_numbers(const Sizes& shape, std::uint32_t seed = 1) { return random_integers(shape, 256, seed); }

inline Bits bits_of(DType type, const Tensor& x) {
    Bits out;
    for (const float number : x.floats()) {
        out.push_back(narrowed(type, number));
    }
    return out;
}

}  // namespace vkf::test
