// SPDX-License-Identifier: Apache-2.0
// A driver that lies: it changes what some kernels wrote, makes no pipelines of them, hangs in
// them, or says that it ran what it did not.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tests/fake_vulkan.h"

namespace vkf::test {

/// Kernels are told apart by what their SPIR-V declares (OpCapability), since a driver does not
/// know their names. Lives as long as the Vulkan that it stands in.
class LyingDevice {
public:
    static constexpr std::uint32_t kEveryKernel = 1;  ///< Shader, which all declare
    /// Kernels that exchange numbers between the lanes of a subgroup.
    static constexpr std::uint32_t kShuffles = 65;  ///< GroupNonUniformShuffle

    /// Meets the kernels that declare this capability.
    LyingDevice(fake::Vulkan& vulkan, std::uint32_t capability);

    /// One number that a kernel wrote is changed, each `every` dispatches of such kernels.
    void corrupt(std::uint64_t every = 1);
    /// vkCreateComputePipelines gives VK_ERROR_UNKNOWN.
    void refuse();
    /// Waiting for them ends with VK_TIMEOUT.
    void hang();
    /// vkQueueSubmit gives VK_SUCCESS and runs nothing, of any kernel.
    void drop();

private:
    void follow_pipelines();
    void follow_commands();
    void change_result(VkCommandBuffer commands);

    fake::Vulkan& vulkan_;
    std::uint32_t capability_;
    std::mutex mutex_;
    std::set<VkShaderModule> modules_;
    std::set<VkPipeline> pipelines_;
    std::map<std::pair<VkDescriptorSet, std::uint32_t>, VkDescriptorBufferInfo> buffers_;
    std::map<VkCommandBuffer, VkPipeline> bound_;
    std::map<VkCommandBuffer, VkDescriptorSet> set_;
    std::set<VkCommandBuffer> met_;  ///< command buffers with such a kernel
    std::uint64_t dispatches_ = 0, every_ = 0;
    bool refuses_ = false, waits_ = false;
};

}  // namespace vkf::test
