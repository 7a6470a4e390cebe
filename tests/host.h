// SPDX-License-Identifier: Apache-2.0
// A program that has Vulkan of its own, as those do that embed the library: instance, device, queue, buffers and command
// buffers, and a validation messenger when VKFORMER_VALIDATION=1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/vulkan.h"

namespace vkf::test {

class Host {
public:
    /// Of the devices there are the first.
    Host();
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    /// What Device::borrow() wants.
    BorrowedDevice handles() const;

    /// A mapped storage buffer; gone with the host or with destroy().
    struct Buffer {
        VkBuffer buffer = VK_NULL_HANDLE;
        VkDeviceMemory memory = VK_NULL_HANDLE;
        std::byte* mapped = nullptr;
    };
    Buffer make_buffer(std::uint64_t bytes);
    void destroy(const Buffer& buffer);

    VkCommandBuffer begin();
    /// Makes what kernels wrote visible to the host, ends and submits, and does not wait.
    void submit(VkCommandBuffer commands);
    void wait_idle();

    /// What validation said so far.
    const std::vector<std::string>& messages() const { return messages_; }

private:
    InstanceTable instance_api_;
    DeviceTable api_;
    VkInstance instance_ = VK_NULL_HANDLE;
    VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
    VkPhysicalDevice physical_ = VK_NULL_HANDLE;
    VkDevice device_ = VK_NULL_HANDLE;
    std::uint32_t family_ = 0;
    VkQueue queue_ = VK_NULL_HANDLE;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    std::vector<Buffer> buffers_;
    std::vector<std::string> messages_;
};

}  // namespace vkf::test
