// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/vulkan_device.h"

namespace vkf {

VulkanDevice::~VulkanDevice() {
    if (handle && owned && api.vkDestroyDevice) {
        api.vkDestroyDevice(handle, nullptr);
    }
}

void VulkanDevice::check_alive() const {
    if (lost) {
        throw Error("the device " + capabilities.name + " was lost; make a new Device", {}, VK_ERROR_DEVICE_LOST);
    }
}

void VulkanDevice::check_result(VkResult result, const char* call) {
    if (result == VK_ERROR_DEVICE_LOST) {
        lost = true;
    }
    check(result, call);
}

void VulkanDevice::submit(VkCommandBuffer commands, VkFence fence, VkSemaphore timeline, std::uint64_t value) {
    check_alive();
    VkSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    info.commandBufferCount = 1;
    info.pCommandBuffers = &commands;
    VkTimelineSemaphoreSubmitInfo values{};
    values.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
    values.signalSemaphoreValueCount = 1;
    values.pSignalSemaphoreValues = &value;
    if (timeline) {
        info.pNext = &values;
        info.signalSemaphoreCount = 1;
        info.pSignalSemaphores = &timeline;
    }
    const std::scoped_lock lock(queue_mutex);
    if (host.lock) {
        host.lock(host.user);
    }
    const VkResult result = api.vkQueueSubmit(queue, 1, &info, fence);
    if (host.unlock) {
        host.unlock(host.user);
    }
    check_result(result, "vkQueueSubmit");
}

VkFence VulkanDevice::make_fence() {
    const VkFenceCreateInfo info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, 0};
    VkFence fence = VK_NULL_HANDLE;
    check_result(api.vkCreateFence(handle, &info, nullptr, &fence), "vkCreateFence");
    return fence;
}

void VulkanDevice::wait(VkFence fence) {
    const VkResult result = api.vkWaitForFences(handle, 1, &fence, VK_TRUE, ~std::uint64_t{0});
    if (result != VK_SUCCESS) {
        wait_idle();
    }
    check_result(result, "vkWaitForFences");
}

void VulkanDevice::wait_idle() noexcept {
    if (!queue) {
        return;
    }
    const std::scoped_lock lock(queue_mutex);
    if (host.lock) {
        host.lock(host.user);
    }
    api.vkQueueWaitIdle(queue);
    if (host.unlock) {
        host.unlock(host.user);
    }
}

void VulkanDevice::submit_and_wait(VkCommandBuffer commands) {
    VkFence fence = make_fence();
    try {
        submit(commands, fence);
        wait(fence);
    } catch (...) {
        api.vkDestroyFence(handle, fence, nullptr);
        throw;
    }
    api.vkDestroyFence(handle, fence, nullptr);
}

void VulkanDevice::name(VkObjectType type, std::uint64_t object, const std::string& text) const {
    if (instance->debug_utils && instance->api.vkSetDebugUtilsObjectNameEXT) {
        const VkDebugUtilsObjectNameInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT, nullptr, type,
                                                 object, text.c_str()};
        instance->api.vkSetDebugUtilsObjectNameEXT(handle, &info);
    }
}

}  // namespace vkf
