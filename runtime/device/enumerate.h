// SPDX-License-Identifier: Apache-2.0
// Vulkan's calls that give first a count and then a list.
#pragma once

#include <vector>

#include "runtime/device/vulkan.h"

namespace vkf {

/// The whole list, each entry `blank` before Vulkan fills it; asks again where the list grew in
/// between. Throws, naming the call, where it fails or gives VK_INCOMPLETE each time.
template <class Entry, class Call>
std::vector<Entry> enumerate(const char* name, Call call, const Entry& blank = {}) {
    constexpr int kAttempts = 8;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::uint32_t count = 0;
        VkResult result = call(&count, nullptr);
        std::vector<Entry> list(result == VK_SUCCESS ? count : 0, blank);
        if (!list.empty()) {
            result = call(&count, list.data());
        }
        if (result != VK_INCOMPLETE) {
            check(result, name);
            list.resize(count);  // fewer than before where one went away in between
            return list;
        }
    }
    throw Error(std::string(name) + " gave VK_INCOMPLETE each time", {}, VK_INCOMPLETE);
}

}  // namespace vkf
