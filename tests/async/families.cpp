// SPDX-License-Identifier: Apache-2.0
// The barriers of samples/async on a device whose compute queue is of a family of its own, which no
// software device has: the function table says so, notes each change of ownership, and passes the
// rest on to the one queue there is.
#include <cstdio>
#include <map>
#include <vector>

#include "samples/async/frames.h"
#include "tests/fake_vulkan.h"

namespace {

constexpr std::uint32_t kGraphics = 0, kCompute = 1;

struct Change {
    std::uint32_t recorded_on;  ///< family of the command buffer
    VkBufferMemoryBarrier barrier;
};

int failures = 0;

void expect(bool good, const char* what) {
    if (!good) {
        std::printf("FAILED: %s\n", what);
        ++failures;
    }
}

/// Everything goes to family 0 in the end.
class TwoFamilies {
public:
    TwoFamilies() {
        vulkan_.vkGetPhysicalDeviceQueueFamilyProperties.instead = [&](VkPhysicalDevice physical, std::uint32_t* count,
                                                                       VkQueueFamilyProperties* families) {
            if (families != nullptr) {
                std::uint32_t one = 1;
                vulkan_.vkGetPhysicalDeviceQueueFamilyProperties.real(physical, &one, families);
                families[kCompute] = families[kGraphics];
                families[kCompute].queueFlags = VK_QUEUE_COMPUTE_BIT;
            }
            *count = 2;
        };
        vulkan_.vkCreateDevice.instead = [&](VkPhysicalDevice physical, const VkDeviceCreateInfo* asked,
                                             const VkAllocationCallbacks* allocator, VkDevice* device) {
            expect(asked->queueCreateInfoCount == 2, "the sample asks for a queue of each family");
            VkDeviceCreateInfo info = *asked;
            info.queueCreateInfoCount = 1;
            return vulkan_.vkCreateDevice.real(physical, &info, allocator, device);
        };
        vulkan_.vkGetDeviceQueue.instead = [&](VkDevice device, std::uint32_t, std::uint32_t index, VkQueue* queue) {
            vulkan_.vkGetDeviceQueue.real(device, kGraphics, index, queue);
        };
        vulkan_.vkCreateCommandPool.instead = [&](VkDevice device, const VkCommandPoolCreateInfo* asked,
                                                  const VkAllocationCallbacks* allocator, VkCommandPool* pool) {
            VkCommandPoolCreateInfo info = *asked;
            info.queueFamilyIndex = kGraphics;
            const VkResult result = vulkan_.vkCreateCommandPool.real(device, &info, allocator, pool);
            pools_[*pool] = asked->queueFamilyIndex;
            return result;
        };
        vulkan_.vkAllocateCommandBuffers.instead = [&](VkDevice device, const VkCommandBufferAllocateInfo* info,
                                                       VkCommandBuffer* commands) {
            const VkResult result = vulkan_.vkAllocateCommandBuffers.real(device, info, commands);
            commands_[*commands] = pools_[info->commandPool];
            return result;
        };
        vulkan_.vkCmdPipelineBarrier.instead =
            [&](VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to, VkDependencyFlags flags,
                std::uint32_t memory_count, const VkMemoryBarrier* memory, std::uint32_t count,
                const VkBufferMemoryBarrier* buffers, std::uint32_t images, const VkImageMemoryBarrier* image) {
                for (std::uint32_t i = 0; i < count; ++i) {
                    changes[buffers[i].buffer].push_back({commands_[commands], buffers[i]});
                }
                vulkan_.vkCmdPipelineBarrier.real(commands, from, to, flags, memory_count, memory, 0, nullptr, images,
                                                  image);
            };
    }

    PFN_vkGetInstanceProcAddr entry() const { return reinterpret_cast<PFN_vkGetInstanceProcAddr>(vulkan_.entry()); }

    std::map<VkBuffer, std::vector<Change>> changes;  ///< in the order they were recorded

private:
    fake::Vulkan vulkan_;
    std::map<VkCommandPool, std::uint32_t> pools_;
    std::map<VkCommandBuffer, std::uint32_t> commands_;
};

/// Each release is followed by its acquire: the same families and range, each recorded on its own
/// side.
void expect_pairs(const std::vector<Change>& changes, std::size_t frames) {
    expect(changes.size() == 2 * frames, "a release and an acquire a frame");
    for (std::size_t i = 0; i + 1 < changes.size(); i += 2) {
        const VkBufferMemoryBarrier& release = changes[i].barrier;
        const VkBufferMemoryBarrier& acquire = changes[i + 1].barrier;
        expect(release.srcQueueFamilyIndex != release.dstQueueFamilyIndex, "the owner changes");
        expect(release.srcQueueFamilyIndex == acquire.srcQueueFamilyIndex &&
                   release.dstQueueFamilyIndex == acquire.dstQueueFamilyIndex,
               "both sides name the same families");
        expect(release.offset == acquire.offset && release.size == acquire.size, "both sides name the same range");
        expect(changes[i].recorded_on == release.srcQueueFamilyIndex, "released by the family that has it");
        expect(changes[i + 1].recorded_on == release.dstQueueFamilyIndex, "acquired by the family that gets it");
        expect(release.srcAccessMask != 0 && acquire.dstAccessMask != 0, "what was written is made visible");
        expect(release.srcQueueFamilyIndex == changes[0].barrier.srcQueueFamilyIndex, "always in the same direction");
    }
}

}  // namespace

int main() try {
    constexpr std::uint64_t kFrames = 4;
    TwoFamilies families;
    {
        Gpu gpu(families.entry());
        expect(gpu.graphics.family == kGraphics && gpu.compute.family == kCompute, "the sample finds both families");
        Frames frames(gpu, 4);
        frames.run(0, kFrames, true);
        double steps = 0;
        expect(frames.difference(kFrames - 1, steps) <= 1e-4 && steps <= 1, "the answer is right");
    }
    std::size_t towards_compute = 0;
    for (const auto& [buffer, changes] : families.changes) {
        expect_pairs(changes, kFrames / Frames::kSlots);
        towards_compute += changes.front().barrier.dstQueueFamilyIndex == kCompute ? 1 : 0;
    }
    expect(families.changes.size() == 2 * Frames::kSlots, "x and y of each slot change hands");
    expect(towards_compute == Frames::kSlots, "x goes to compute, y comes back");
    std::printf("%d failed\n", failures);
    return failures == 0 ? 0 : 1;
} catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
}
