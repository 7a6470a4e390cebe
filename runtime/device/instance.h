// SPDX-License-Identifier: Apache-2.0
// A Vulkan instance: our own, or a host's.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device/vulkan.h"
#include "runtime/device/vulkan_handles.h"

namespace vkf {

/// Validation messages, collected by the messenger of an instance.
struct MessageLog {
    std::mutex mutex;
    std::vector<std::string> messages;
};

/// An instance of our own, or a host's.
struct InstanceCore {
    InstanceTable api;
    VkInstance handle = VK_NULL_HANDLE;
    std::uint32_t api_version = VK_API_VERSION_1_1;  ///< it was made for; a host's does not tell
    bool owned = false;
    bool debug_utils = false;  ///< objects get names
    bool labels = false;       ///< dispatches get labels
    VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
    MessageLog log;
    std::shared_ptr<InstanceCore> itself;  ///< where it is kept for ever
    InstanceCore* kept_before = nullptr;   ///< another that is

    ~InstanceCore();
};

/// The host's entry point, or that of the loader, which is opened. Throws when there is none.
PFN_vkGetInstanceProcAddr entry_point(GetInstanceProcAddr given);
/// Makes an instance. Throws when there is no loader, no driver, or no validation layer where it is
/// asked for.
std::shared_ptr<InstanceCore> make_instance(GetInstanceProcAddr given, bool validation);
/// False where a Khronos validation layer is installed that does not survive labels.
bool survives_labels(PFN_vkGetInstanceProcAddr get);
/// Keeps an instance until the process ends: a device that was given up may still use it. Once
/// for each.
void keep_for_ever(std::shared_ptr<InstanceCore> instance) noexcept;

}  // namespace vkf
