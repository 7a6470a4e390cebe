// SPDX-License-Identifier: Apache-2.0
// Kernels compile while weights upload.
#pragma once

#include <future>
#include <system_error>

#include "runtime/device/weights.h"

namespace vkf {

/// Returns what `load` gives, while `compile` runs on a thread of its own, or after it where no
/// thread can be had. Throws what one of them throws, `load` first, once both have ended.
template <class Compile, class Load>
Weights load_beside(const Compile& compile, const Load& load) {
    std::future<void> compiled;
    try {
        compiled = std::async(std::launch::async, compile);
    } catch (const std::system_error&) {
        compiled = std::async(std::launch::deferred, compile);
    }
    Weights weights = load();
    compiled.get();
    return weights;
}

}  // namespace vkf
