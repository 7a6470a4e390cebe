// SPDX-License-Identifier: Apache-2.0
// Results of calls that neither throw nor allocate.
#pragma once

#include <array>

namespace vkf {

/// The result of a call that neither throws nor allocates.
struct Status {
    static constexpr int kWrongUse = -1;

    int result = 0;  ///< 0: done; otherwise a VkResult, or kWrongUse
    std::array<char, 240> message{};
    explicit operator bool() const noexcept { return result == 0; }
    /// The result as Error::result() gives it: the VkResult, or 0 where the error is not Vulkan's.
    int error_result() const noexcept { return result == kWrongUse ? 0 : result; }
};

}  // namespace vkf
