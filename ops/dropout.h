// SPDX-License-Identifier: Apache-2.0
// The arithmetic of dropout: which random bits take an element away, what the others become, and
// how a dispatch learns the seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/compile/lowering.h"

namespace vkf::support {

/// An element is dropped when its 32 random bits are below this.
inline std::uint32_t dropout_threshold(float p) {
    return static_cast<std::uint32_t>(std::min(std::round(static_cast<double>(p) * 4294967296.0), 4294967295.0));
}

/// The factor that kept elements are multiplied by. p = 1 keeps none.
inline float dropout_scale(float p) {
    return p == 1.0f ? 0.0f : static_cast<float>(1.0 / (1.0 - static_cast<double>(p)));
}

/// A view for Dispatch::sizes_of, of which seed_of() reads the seed of a run. It is the stride of
/// the one element, which nothing else looks at.
inline ValueId seed_view(Lowering& l, ValueId any, const Dim& seed) { return l.window(any, {1}, {seed}, 0); }
/// The seed's value modulo 2^32.
inline std::uint32_t seed_of(const View& view) noexcept { return view.step(0); }

}  // namespace vkf::support
