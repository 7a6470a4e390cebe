// SPDX-License-Identifier: Apache-2.0
// How kernels are told of a mask's alignment and window.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/mask.h"

namespace vkf::support {

/// A kernel's specialization constant: 0: not causal; 1: top-left; 2: bottom-right.
inline std::uint32_t causal_constant(Causal causal) {
    return causal == Causal::none ? 0 : causal == Causal::top_left ? 1 : 2;
}

/// The specialization constant for a window: the widest hides nothing, and a position less it does
/// not overflow.
inline std::uint32_t window_constant(std::int64_t window) {
    return static_cast<std::uint32_t>(std::min<std::int64_t>(window, 1 << 30));
}

/// The push constant for a window: 0 where it is so wide that it masks nothing.
inline std::uint32_t pushed_window(std::int64_t window, std::uint32_t queries, std::uint32_t keys) noexcept {
    return window < std::max(queries, keys) ? static_cast<std::uint32_t>(window) : 0;
}

}  // namespace vkf::support
