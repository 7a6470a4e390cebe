// SPDX-License-Identifier: Apache-2.0
// The arithmetic of dropout: which random bits take an element away, and what the others become.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/compile/dispatch.h"

namespace vkf::support {

/// An element is dropped when its 32 random bits are below this.
inline std::uint32_t dropout_threshold(float p) {
    return static_cast<std::uint32_t>(std::min(std::round(static_cast<double>(p) * 4294967296.0), 4294967295.0));
}

/// The factor that kept elements are multiplied by. p = 1 keeps none.
inline float dropout_scale(float p) {
    return p == 1.0f ? 0.0f : static_cast<float>(1.0 / (1.0 - static_cast<double>(p)));
}

/// The seed of a run, modulo 2^32.
inline std::uint32_t seed_of(const Operands& operands, const Dim& seed) noexcept {
    return static_cast<std::uint32_t>(operands.value(seed));
}

}  // namespace vkf::support
