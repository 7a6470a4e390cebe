// SPDX-License-Identifier: Apache-2.0
// A driver that lies: it changes what some kernels wrote, makes no pipelines of them, hangs in
// them, or says that it ran what it did not.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/fake_vulkan.h"

namespace vkf::test {

/// Kernels are told apart by what their SPIR-V declares (OpCapability), or by the name that
/// VK_EXT_debug_utils gives their pipelines. Lives as long as the Vulkan that it stands in.
class LyingDevice {
public:
    static constexpr std::uint32_t kEveryKernel = 1;  ///< Shader, which all declare
    /// Kernels that exchange numbers between the lanes of a subgroup.
    static constexpr std::uint32_t kShuffles = 65;  ///< GroupNonUniformShuffle

    /// Meets the kernels that declare this capability.
    LyingDevice(fake::Vulkan& vulkan, std::uint32_t capability);
    /// Meets the kernel of this name.
    LyingDevice(fake::Vulkan& vulkan, std::string kernel);

    /// True where a program has recorded one of the kernels.
    bool met() const { return dispatches_ != 0; }

    /// One number that a kernel wrote is changed, each `every` dispatches of such kernels.
    void corrupt(std::uint64_t every = 1);
    /// vkCreateComputePipelines gives VK_ERROR_UNKNOWN.
    void refuse();
    /// Their dispatches are left out, so that what was there stays.
    void skip();
    /// vkQueueSubmit gives VK_ERROR_DEVICE_LOST.
    void lose();
    /// Waiting for them ends with VK_TIMEOUT.
    void hang();
    /// vkQueueSubmit gives VK_SUCCESS and runs nothing, of any kernel.
    void drop();

private:
    void follow_names();
    void follow_pipelines();
    void follow_commands();
    void change_result(VkCommandBuffer commands);

    fake::Vulkan& vulkan_;
    std::uint32_t capability_ = 0;  ///< 0: none
    std::string kernel_;
    std::mutex mutex_;
    std::set<VkShaderModule> modules_;
    std::set<VkPipeline> pipelines_;
    std::map<std::pair<VkDescriptorSet, std::uint32_t>, VkDescriptorBufferInfo> buffers_;
    std::map<VkCommandBuffer, VkPipeline> bound_;
    std::map<VkCommandBuffer, VkDescriptorSet> set_;
    std::set<VkCommandBuffer> met_;  ///< command buffers with such a kernel
    std::uint64_t dispatches_ = 0, every_ = 0;
    bool refuses_ = false, skips_ = false, waits_ = false;
};

}  // namespace vkf::test
