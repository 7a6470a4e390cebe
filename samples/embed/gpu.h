// SPDX-License-Identifier: Apache-2.0
// The renderer's own Vulkan: instance, device, queue, and what is made on them. All of it goes when
// the Gpu goes, in reverse order.
#pragma once

#include <volk.h>

#include <vkformer/vkformer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Throws naming the call.
void check(VkResult result, const char* call);

struct Buffer {
    VkBuffer handle{};
    std::byte* mapped{};  // null where only the device sees it
    std::uint64_t bytes = 0;

    std::span<const float> floats() const { return {reinterpret_cast<const float*>(mapped), bytes / sizeof(float)}; }
};

struct Image {
    VkImage handle{};
    VkImageView view{};
};

/// A dependency of all memory.
void barrier(VkCommandBuffer commands, VkPipelineStageFlags from_stage, VkAccessFlags from,
             VkPipelineStageFlags to_stage, VkAccessFlags to);

/// A storage buffer, or `bytes` of it from `offset` on, as a program's input or output.
vkf::BufferRange range(const char* name, const Buffer& buffer, std::uint64_t offset = 0, std::uint64_t bytes = 0);

class Gpu {
public:
    /// Opens the device, with VKFORMER_VALIDATION=1 under the validation layer.
    /// `instance_extensions` are a window's; `swapchain` asks for its extension.
    explicit Gpu(const std::vector<const char*>& instance_extensions = {}, bool swapchain = false);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    VkInstance instance{};
    VkPhysicalDevice physical{};
    VkDevice device{};
    std::uint32_t family = 0;  // that draws and computes
    VkQueue queue{};

    /// Describes the device as Device::borrow() wants it.
    vkf::BorrowedDevice lend() const;

    enum class Seen { by_host, by_device };
    Buffer make_buffer(std::uint64_t bytes, VkBufferUsageFlags usage, Seen seen = Seen::by_host);
    Image make_image(VkFormat format, VkExtent2D size, VkImageUsageFlags usage);
    VkShaderModule make_shader(std::span<const std::uint32_t> spirv);
    /// Storage buffers 0 .. bindings-1, and push constants of that size, for these stages.
    VkDescriptorSetLayout make_set_layout(std::uint32_t bindings, VkShaderStageFlags stages);
    VkPipelineLayout make_pipeline_layout(VkDescriptorSetLayout sets, VkShaderStageFlags stages, std::uint32_t bytes);
    VkDescriptorSet make_set(VkDescriptorSetLayout layout, const std::vector<VkBuffer>& buffers);
    VkCommandBuffer make_commands();
    VkFence make_signaled_fence();
    VkSemaphore make_semaphore();

    /// Something to undo at the end.
    void later(std::function<void()> undo) { undo_.push_back(std::move(undo)); }
    /// The messages of the validation layer.
    const std::vector<std::string>& messages() const { return messages_; }

private:
    void make_instance(std::vector<const char*> extensions, bool validation);
    void choose_device();
    void make_device(bool swapchain);
    VkDeviceMemory allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags properties);

    std::optional<vkf::DeviceRequirements> needs_;  // vkformer's, which the device was made with
    std::vector<const char*> extensions_;
    VkDeviceCreateInfo created_with_{};
    std::vector<std::function<void()>> undo_;
    std::vector<std::string> messages_;
    VkDescriptorPool sets_{};
    VkCommandPool commands_{};
};
