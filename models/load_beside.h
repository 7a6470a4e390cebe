// SPDX-License-Identifier: Apache-2.0
// Kernels compile while weights upload.
#pragma once

#include <future>

#include "runtime/device/weights.h"

namespace vkf {

/// Returns what `load` gives, while `compile` runs on a thread of its own. Throws what one of them
/// throws, `load` first, once both have ended.
template <class Compile, class Load>
Weights load_beside(const Compile& compile, const Load& load) {
    std::future<void> compiled = std::async(std::launch::async, compile);
    Weights weights = load();
    compiled.get();
    return weights;
}

}  // namespace vkf
