// SPDX-License-Identifier: Apache-2.0
// Results of calls that neither throw nor allocate.
#pragma once

#include <array>

namespace vkf {

/// What a call that neither throws nor allocates says.
struct Status {
    int result = 0;  ///< 0: done; otherwise a VkResult, or -1 for wrong use
    std::array<char, 240> message{};
    explicit operator bool() const noexcept { return result == 0; }
    /// As Error::result() has it: 0 where it was not Vulkan.
    int error_result() const noexcept { return result == -1 ? 0 : result; }
};

}  // namespace vkf
