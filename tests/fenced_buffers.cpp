// SPDX-License-Identifier: Apache-2.0
// How the library's buffers come to lie between fences: what it asks Vulkan for is moved.
#include "tests/fenced.h"

namespace vkf::test {

void Fenced::put_fences() {
    vulkan_.vkCreateBuffer.instead = [this](VkDevice device, const VkBufferCreateInfo* info,
                                            const VkAllocationCallbacks* callbacks, VkBuffer* buffer) {
        VkBufferCreateInfo larger = *info;
        larger.size += 2 * kFence;
        const VkResult result = vulkan_.vkCreateBuffer.real(device, &larger, callbacks, buffer);
        owned_[*buffer] = {.bytes = info->size};
        return result;
    };
    vulkan_.vkDestroyBuffer.instead = [this](VkDevice device, VkBuffer buffer, const VkAllocationCallbacks* callbacks) {
        owned_.erase(buffer);
        vulkan_.vkDestroyBuffer.real(device, buffer, callbacks);
    };
    vulkan_.vkBindBufferMemory.instead = [this](VkDevice device, VkBuffer buffer, VkDeviceMemory memory,
                                                VkDeviceSize offset) {
        owned_[buffer].memory = memory;
        return vulkan_.vkBindBufferMemory.real(device, buffer, memory, offset);
    };
    vulkan_.vkMapMemory.instead = [this](VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
                                         VkMemoryMapFlags flags, void** data) {
        const VkResult result = vulkan_.vkMapMemory.real(device, memory, offset, size, flags, data);
        for (auto& [buffer, owned] : owned_) {
            if (owned.memory == memory) {
                owned.base = static_cast<std::byte*>(*data);
                *data = owned.base + kFence;
            }
        }
        return result;
    };
    vulkan_.vkCmdCopyBuffer.instead = [this](VkCommandBuffer commands, VkBuffer from, VkBuffer to, std::uint32_t count,
                                             const VkBufferCopy* regions) {
        std::vector<VkBufferCopy> moved(regions, regions + count);
        for (VkBufferCopy& region : moved) {
            region.srcOffset += owned_.contains(from) ? kFence : 0;
            region.dstOffset += owned_.contains(to) ? kFence : 0;
        }
        vulkan_.vkCmdCopyBuffer.real(commands, from, to, count, moved.data());
    };
    vulkan_.vkCmdFillBuffer.instead = [this](VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset,
                                             VkDeviceSize bytes, std::uint32_t word) {
        vulkan_.vkCmdFillBuffer.real(commands, buffer, offset + (owned_.contains(buffer) ? kFence : 0), bytes, word);
    };
    vulkan_.vkCreateBufferView.instead = [this](VkDevice device, const VkBufferViewCreateInfo* info,
                                                const VkAllocationCallbacks* callbacks, VkBufferView* view) {
        VkBufferViewCreateInfo wide = *info;
        wide.offset += kFence;
        wide.range = VK_WHOLE_SIZE;
        return vulkan_.vkCreateBufferView.real(device, &wide, callbacks, view);
    };
    vulkan_.vkUpdateDescriptorSets.instead = [this](VkDevice device, std::uint32_t count,
                                                    const VkWriteDescriptorSet* writes, std::uint32_t copies,
                                                    const VkCopyDescriptorSet* copied) {
        std::vector<VkWriteDescriptorSet> wide(writes, writes + count);
        std::vector<VkDescriptorBufferInfo> buffers(count);
        for (std::uint32_t i = 0; i < count; ++i) {
            buffers[i] = *writes[i].pBufferInfo;
            const bool bound = bound_.contains(buffers[i].buffer);
            if (bound || owned_.contains(buffers[i].buffer)) {
                buffers[i].offset += bound ? shift : kFence;
                buffers[i].range = VK_WHOLE_SIZE;
            }
            wide[i].pBufferInfo = &buffers[i];
        }
        vulkan_.vkUpdateDescriptorSets.real(device, count, wide.data(), copies, copied);
    };
}

}  // namespace vkf::test
