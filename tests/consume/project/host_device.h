// SPDX-License-Identifier: Apache-2.0
// A host's own instance and device. Includes no Vulkan header: the host has chosen one already, and
// the vk* names are its own.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

struct HostDevice {
    VkInstance instance = VK_NULL_HANDLE;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;
    VkQueue queue = VK_NULL_HANDLE;
};

inline void require(VkResult result, const char* what) {
    if (result == VK_SUCCESS) return;
    std::printf("host: %s gave %d\n", what, static_cast<int>(result));
    std::exit(1);
}

inline VkInstance make_host_instance() {
    VkApplicationInfo application = {};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    VkInstance instance = VK_NULL_HANDLE;
    require(vkCreateInstance(&info, nullptr, &instance), "vkCreateInstance");
    return instance;
}

/// The first physical device, with one queue of its first family.
inline HostDevice make_host_device(VkInstance instance) {
    HostDevice host;
    host.instance = instance;
    std::uint32_t count = 1;
    const VkResult found = vkEnumeratePhysicalDevices(instance, &count, &host.physical);
    require(found == VK_INCOMPLETE ? VK_SUCCESS : found, "vkEnumeratePhysicalDevices");
    const float priority = 1;
    VkDeviceQueueCreateInfo queue = {};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    require(vkCreateDevice(host.physical, &info, nullptr, &host.device), "vkCreateDevice");
    vkGetDeviceQueue(host.device, 0, 0, &host.queue);
    return host;
}

/// The host works on with its device, and ends it.
inline void finish(const HostDevice& host) {
    require(vkQueueSubmit(host.queue, 0, nullptr, VK_NULL_HANDLE), "vkQueueSubmit");
    require(vkDeviceWaitIdle(host.device), "vkDeviceWaitIdle");
    vkDestroyDevice(host.device, nullptr);
    vkDestroyInstance(host.instance, nullptr);
}
