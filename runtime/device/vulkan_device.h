// SPDX-License-Identifier: Apache-2.0
// A VkDevice, our own or a host's, with its queue.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/compile/capabilities.h"
#include "runtime/device/borrowed_device.h"
#include "runtime/device/device_options.h"
#include "runtime/device/instance.h"
#include "runtime/device/vulkan.h"

namespace vkf {

struct VulkanDevice {
    std::shared_ptr<InstanceCore> instance;
    DeviceTable api;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice handle = VK_NULL_HANDLE;
    bool owned = false;
    std::uint32_t queue_family = 0;
    VkQueue queue = VK_NULL_HANDLE;
    std::mutex queue_mutex;
    BorrowedDevice host;  ///< lock functions of a borrowed queue
    Capabilities capabilities;
    VkPhysicalDeviceMemoryProperties memory{};
    DeviceOptions options;
    double submit_budget = 0;        ///< the budget of DeviceOptions, decided for this device
    std::atomic<bool> lost = false;  ///< sticky: every later call throws

    VulkanDevice() = default;
    VulkanDevice(const VulkanDevice&) = delete;
    VulkanDevice& operator=(const VulkanDevice&) = delete;
    ~VulkanDevice();  // destroys an own device

    /// Submits and remembers a lost device. `fence` may be null, and `timeline`, which is given the
    /// value when it is done.
    void submit(VkCommandBuffer commands, VkFence fence, VkSemaphore timeline = VK_NULL_HANDLE,
                std::uint64_t value = 0);
    /// Submits and waits until done.
    void submit_and_wait(VkCommandBuffer commands);
    /// Throws when it fails; then nothing is pending any more.
    void wait(VkFence fence);
    /// Waits for everything submitted, whatever became of it.
    void wait_idle() noexcept;
    /// Throws when the device was lost before.
    void check_alive() const;
    /// Does what check() does, and remembers VK_ERROR_DEVICE_LOST.
    void check_result(VkResult result, const char* call);
    VkFence make_fence();
    /// Names a Vulkan object for debuggers and validation messages; does nothing where debug utils
    /// are absent.
    void name(VkObjectType type, std::uint64_t object, const std::string& text) const;
};

}  // namespace vkf
