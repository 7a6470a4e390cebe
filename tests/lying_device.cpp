// SPDX-License-Identifier: Apache-2.0
#include "tests/lying_device.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace vkf::test {

namespace {

/// The binding of a product's result, and of an attention's.
constexpr std::uint32_t kWritten = 3;

bool declares(const VkShaderModuleCreateInfo& module, std::uint32_t capability) {
    constexpr std::uint32_t kOpCapability = 17;
    const std::span words(module.pCode, module.codeSize / 4);
    for (std::size_t i = 5; i < words.size() && (words[i] & 0xffffu) == kOpCapability; i += words[i] >> 16) {
        if (words[i + 1] == capability) {
            return true;
        }
    }
    return false;
}

}  // namespace

LyingDevice::LyingDevice(fake::Vulkan& vulkan, std::uint32_t capability) : vulkan_(vulkan), capability_(capability) {
    follow_pipelines();
    follow_commands();
}

LyingDevice::LyingDevice(fake::Vulkan& vulkan, std::string kernel) : vulkan_(vulkan), kernel_(std::move(kernel)) {
    follow_names();
    follow_commands();
}

void LyingDevice::follow_names() {
    vulkan_.vkSetDebugUtilsObjectNameEXT.instead = [this](VkDevice device, const VkDebugUtilsObjectNameInfoEXT* info) {
        if (info->objectType == VK_OBJECT_TYPE_PIPELINE) {
            VkPipeline pipeline = VK_NULL_HANDLE;
            std::memcpy(&pipeline, &info->objectHandle, sizeof(pipeline));
            const std::scoped_lock lock(mutex_);
            pipelines_.erase(pipeline);
            if (info->pObjectName == kernel_) {
                pipelines_.insert(pipeline);
            }
        }
        return vulkan_.vkSetDebugUtilsObjectNameEXT.real(device, info);
    };
}

void LyingDevice::follow_pipelines() {
    vulkan_.vkCreateShaderModule.instead = [this](VkDevice device, const VkShaderModuleCreateInfo* info,
                                                  const VkAllocationCallbacks* callbacks, VkShaderModule* module) {
        const VkResult result = vulkan_.vkCreateShaderModule.real(device, info, callbacks, module);
        const std::scoped_lock lock(mutex_);
        modules_.erase(*module);
        if (result == VK_SUCCESS && declares(*info, capability_)) {
            modules_.insert(*module);
        }
        return result;
    };
    vulkan_.vkCreateComputePipelines.instead = [this](VkDevice device, VkPipelineCache cache, std::uint32_t count,
                                                      const VkComputePipelineCreateInfo* infos,
                                                      const VkAllocationCallbacks* callbacks, VkPipeline* pipelines) {
        bool met = false;
        {
            const std::scoped_lock lock(mutex_);
            met = modules_.contains(infos->stage.module);
        }
        if (met && refuses_) {
            return VK_ERROR_UNKNOWN;
        }
        const VkResult result =
            vulkan_.vkCreateComputePipelines.real(device, cache, count, infos, callbacks, pipelines);
        const std::scoped_lock lock(mutex_);
        pipelines_.erase(*pipelines);
        if (met) {
            pipelines_.insert(*pipelines);
        }
        return result;
    };
}

void LyingDevice::follow_commands() {
    vulkan_.vkUpdateDescriptorSets.instead = [this](VkDevice device, std::uint32_t count,
                                                    const VkWriteDescriptorSet* writes, std::uint32_t copies,
                                                    const VkCopyDescriptorSet* copied) {
        vulkan_.vkUpdateDescriptorSets.real(device, count, writes, copies, copied);
        const std::scoped_lock lock(mutex_);
        for (const VkWriteDescriptorSet& w : std::span(writes, count)) {
            for (std::uint32_t i = 0; w.pBufferInfo && i < w.descriptorCount; ++i) {
                buffers_[{w.dstSet, w.dstBinding + i}] = w.pBufferInfo[i];
            }
        }
    };
    vulkan_.vkBeginCommandBuffer.instead = [this](VkCommandBuffer commands, const VkCommandBufferBeginInfo* info) {
        const std::scoped_lock lock(mutex_);
        met_.erase(commands);
        return vulkan_.vkBeginCommandBuffer.real(commands, info);
    };
    vulkan_.vkCmdBindPipeline.instead = [this](VkCommandBuffer commands, VkPipelineBindPoint point,
                                               VkPipeline pipeline) {
        const std::scoped_lock lock(mutex_);
        bound_[commands] = pipeline;
        vulkan_.vkCmdBindPipeline.real(commands, point, pipeline);
    };
    vulkan_.vkCmdBindDescriptorSets.instead =
        [this](VkCommandBuffer commands, VkPipelineBindPoint point, VkPipelineLayout layout, std::uint32_t first,
               std::uint32_t count, const VkDescriptorSet* sets, std::uint32_t offsets, const std::uint32_t* at) {
            const std::scoped_lock lock(mutex_);
            set_[commands] = sets[0];
            vulkan_.vkCmdBindDescriptorSets.real(commands, point, layout, first, count, sets, offsets, at);
        };
    vulkan_.vkCmdDispatch.instead = [this](VkCommandBuffer commands, std::uint32_t x, std::uint32_t y,
                                           std::uint32_t z) {
        const std::scoped_lock lock(mutex_);
        const bool meets = pipelines_.contains(bound_[commands]);
        if (!meets || !skips_) {
            vulkan_.vkCmdDispatch.real(commands, x, y, z);
        }
        if (meets) {
            ++dispatches_;
            met_.insert(commands);
            change_result(commands);
        }
    };
}

void LyingDevice::change_result(VkCommandBuffer commands) {
    if (every_ == 0 || dispatches_ % every_ != 0) {
        return;
    }
    const auto written = buffers_.find({set_[commands], kWritten});
    if (written == buffers_.end()) {
        return;
    }
    const auto wait = [&](VkPipelineStageFlags before, VkAccessFlags wrote, VkPipelineStageFlags behind,
                          VkAccessFlags next) {
        const VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, wrote, next};
        vulkan_.vkCmdPipelineBarrier.real(commands, before, behind, 0, 1, &barrier, 0, nullptr, 0, nullptr);
    };
    constexpr std::uint32_t kChanged = 0x42f60000;  // 123
    wait(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
         VK_ACCESS_TRANSFER_WRITE_BIT);
    vulkan_.vkCmdFillBuffer.real(commands, written->second.buffer, written->second.offset, 4, kChanged);
    wait(VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
         VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT,
         VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
             VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT);
}

void LyingDevice::corrupt(std::uint64_t every) {
    dispatches_ = 0;
    every_ = every;
}

void LyingDevice::refuse() { refuses_ = true; }

void LyingDevice::skip() { skips_ = true; }

void LyingDevice::lose() {
    vulkan_.vkQueueSubmit.instead = [this](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                           VkFence fence) {
        const std::span commands(infos->pCommandBuffers, infos->commandBufferCount);
        const std::scoped_lock lock(mutex_);
        const bool lost =
            std::any_of(commands.begin(), commands.end(), [&](VkCommandBuffer c) { return met_.contains(c); });
        return lost ? VK_ERROR_DEVICE_LOST : vulkan_.vkQueueSubmit.real(queue, count, infos, fence);
    };
}

void LyingDevice::hang() {
    vulkan_.vkQueueSubmit.instead = [this](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                           VkFence fence) {
        {
            const std::scoped_lock lock(mutex_);
            for (const VkCommandBuffer commands : std::span(infos->pCommandBuffers, infos->commandBufferCount)) {
                waits_ = waits_ || met_.contains(commands);
            }
        }
        return vulkan_.vkQueueSubmit.real(queue, count, infos, fence);
    };
    vulkan_.vkWaitForFences.instead = [this](VkDevice device, std::uint32_t count, const VkFence* fences, VkBool32 all,
                                             std::uint64_t limit) {
        const VkResult result = vulkan_.vkWaitForFences.real(device, count, fences, all, limit);
        return std::exchange(waits_, false) ? VK_TIMEOUT : result;
    };
}

void LyingDevice::drop() {
    vulkan_.vkQueueSubmit.instead = [this](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                           VkFence fence) {
        VkSubmitInfo info = infos[0];
        info.commandBufferCount = 0;
        return vulkan_.vkQueueSubmit.real(queue, count, &info, fence);
    };
}

}  // namespace vkf::test
