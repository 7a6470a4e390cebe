// SPDX-License-Identifier: Apache-2.0
// The host's Vulkan: a device with a queue that draws and one that computes, of a family of its own
// where there is one.
#pragma once

#include <volk.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Throws naming the call.
void check(VkResult result, const char* call);

struct Buffer {
    VkBuffer handle{};
    float* mapped{};
    std::uint64_t bytes = 0;
};

struct Queue {
    VkQueue handle{};
    std::uint32_t family = 0;
    VkCommandPool pool{};
};

/// A semaphore that counts up; wait for a number and signal a higher one.
/// VK_KHR_timeline_semaphore.
struct Timeline {
    VkSemaphore handle{};
};

struct Wait {
    const Timeline* timeline = nullptr;
    std::uint64_t value = 0;
    VkPipelineStageFlags stage = 0;
};

class Gpu {
public:
    /// `entry`: the loader's vkGetInstanceProcAddr, or what stands in its place; null: libvulkan is
    /// opened.
    explicit Gpu(PFN_vkGetInstanceProcAddr entry = nullptr);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    VkInstance instance{};
    VkPhysicalDevice physical{};
    VkDevice device{};
    Queue graphics, compute;

    bool two_queues() const { return graphics.handle != compute.handle; }
    bool two_families() const { return graphics.family != compute.family; }

    Buffer make_buffer(std::uint64_t bytes, VkBufferUsageFlags usage);
    Timeline make_timeline();
    VkCommandBuffer make_commands(const Queue& queue);
    VkDeviceMemory allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags properties);
    VkShaderModule make_shader(std::span<const std::uint32_t> spirv);

    void begin(VkCommandBuffer commands) const;
    /// Ends and submits; `signal` reaches `value` when it is done.
    void submit(const Queue& queue, VkCommandBuffer commands, const std::vector<Wait>& waits, const Timeline& signal,
                std::uint64_t value) const;
    /// Waits on the host.
    void wait(const Timeline& timeline, std::uint64_t value) const;

    /// Something to undo at the end, last things first.
    void later(std::function<void()> undo) { undo_.push_back(std::move(undo)); }
    /// The messages of the validation layer (VKFORMER_VALIDATION=1).
    const std::vector<std::string>& messages() const { return messages_; }

private:
    void make_instance(PFN_vkGetInstanceProcAddr entry);
    void find_families();
    void make_device();

    std::vector<std::function<void()>> undo_;
    std::vector<std::string> messages_;
};
