// SPDX-License-Identifier: Apache-2.0
// A program that has Vulkan of its own, as those do that embed the library: instance, device,
// queue, buffers and command buffers, and a validation messenger when VKFORMER_VALIDATION=1.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/vulkan.h"

namespace vkf::test {

inline std::string text_of(const Status& status) { return status.message.data(); }

class Host {
public:
    /// Opens the first device there is, with what Device::requirements() wishes for when `enable`
    /// is set.
    explicit Host(bool enable = false);
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    /// Gives what Device::borrow() wants.
    BorrowedDevice handles() const;
    const DeviceTable& api() const { return api_; }
    VkDevice device() const { return device_; }
    std::uint32_t family() const { return family_; }
    /// A device function that the library itself has no use for.
    template <class Function>
    Function function(const char* name) const {
        return reinterpret_cast<Function>(instance_api_.vkGetDeviceProcAddr(device_, name));
    }

    /// A mapped storage buffer; gone with the host or with destroy().
    struct Buffer {
        VkBuffer buffer = VK_NULL_HANDLE;
        VkDeviceMemory memory = VK_NULL_HANDLE;
        std::byte* mapped = nullptr;
    };
    Buffer make_buffer(std::uint64_t bytes, VkBufferUsageFlags more_usage = 0);
    void destroy(const Buffer& buffer);

    /// A two-dimensional image in layout GENERAL; gone with the host.
    struct Image {
        VkImage image = VK_NULL_HANDLE;
        VkDeviceMemory memory = VK_NULL_HANDLE;
        VkImageView view = VK_NULL_HANDLE;
        std::uint32_t width = 0, height = 0;
    };
    Image make_image(VkFormat format, std::uint32_t width, std::uint32_t height);
    /// Writes texels, packed as the format has them.
    void write_image(const Image& image, std::span<const std::byte> texels);
    std::vector<std::byte> read_image(const Image& image, std::size_t bytes);

    VkCommandBuffer begin();
    /// Begins a command buffer that has finished once more, instead of a new one.
    VkCommandBuffer begin_again(VkCommandBuffer commands);
    /// Makes what kernels wrote visible to the host, ends and submits, and does not wait.
    void submit(VkCommandBuffer commands);
    void wait_idle();

    /// The messages of the validation layer so far.
    const std::vector<std::string>& messages() const { return messages_; }

private:
    VkDeviceMemory memory_for(const VkMemoryRequirements& needs, VkMemoryPropertyFlags flags);
    /// Records with `f` and waits until it is done.
    template <class F>
    void once(F f);

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
    std::vector<Image> images_;
    std::optional<DeviceRequirements> requirements_;
    std::vector<const char*> extensions_;
    VkDeviceCreateInfo created_with_{};
    std::vector<std::string> messages_;
};

}  // namespace vkf::test
