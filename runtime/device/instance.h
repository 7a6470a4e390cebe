// SPDX-License-Identifier: Apache-2.0
// A Vulkan instance: our own, or a host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device/vulkan.h"
#include "runtime/device/vulkan_handles.h"

namespace vkf {

/// Validation messages, collected by the messenger of an instance.
class MessageLog {
public:
    static constexpr std::size_t kMost = 1000;

    /// Keeps a message, or counts it where there are that many already.
    void add(std::string message);
    /// Gives the messages, and forgets them; a last one says how many were not kept.
    std::vector<std::string> take();
    /// Prints to stderr what nobody took, where `tells` is set.
    void tell() noexcept;

    std::mutex mutex;
    bool tells = false;  ///< tell() prints

private:
    std::vector<std::string> messages_;
    std::uint64_t dropped_ = 0;
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
