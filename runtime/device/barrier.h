// SPDX-License-Identifier: Apache-2.0
// Memory barriers between what this library records.
#pragma once

#include "runtime/device/vulkan.h"

namespace vkf {

inline constexpr VkPipelineStageFlagBits kCompute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
inline constexpr VkPipelineStageFlagBits kTransfer = VK_PIPELINE_STAGE_TRANSFER_BIT;
inline constexpr VkAccessFlags kShaderAccess = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
inline constexpr VkAccessFlags kTransferAccess = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;

inline void barrier(const DeviceTable& vk, VkCommandBuffer commands, VkPipelineStageFlags from_stage,
                    VkAccessFlags from, VkPipelineStageFlags to_stage, VkAccessFlags to) noexcept {
    const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, from, to};
    vk.vkCmdPipelineBarrier(commands, from_stage, to_stage, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

}  // namespace vkf
