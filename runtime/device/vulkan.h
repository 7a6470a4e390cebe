// SPDX-License-Identifier: Apache-2.0
// Vulkan as this library calls it: function tables of our own, one an instance and one a device; no
// globals, no link to a loader, and so no vk* symbol in the library that could meet a host's.
// volk.h gives the header and its function types.
#pragma once

#include <volk.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "../base/error.h"

namespace vkf {

// Required functions. Optional ones may be null: they belong to extensions.
#define VKF_INSTANCE_FUNCTIONS(X)                  \
    X(vkDestroyInstance)                           \
    X(vkEnumeratePhysicalDevices)                  \
    X(vkGetPhysicalDeviceProperties2)              \
    X(vkGetPhysicalDeviceFeatures2)                \
    X(vkGetPhysicalDeviceMemoryProperties)         \
    X(vkGetPhysicalDeviceMemoryProperties2)        \
    X(vkGetPhysicalDeviceExternalBufferProperties) \
    X(vkGetPhysicalDeviceQueueFamilyProperties)    \
    X(vkEnumerateDeviceExtensionProperties)        \
    X(vkCreateDevice)                              \
    X(vkGetDeviceProcAddr)

#ifdef VK_KHR_cooperative_matrix
#define VKF_MATRIX_FUNCTIONS(X) X(vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)
#else  // headers before 1.3.255
#define VKF_MATRIX_FUNCTIONS(X)
#endif

#define VKF_INSTANCE_FUNCTIONS_OPTIONAL(X) \
    VKF_MATRIX_FUNCTIONS(X)                \
    X(vkCreateDebugUtilsMessengerEXT)      \
    X(vkDestroyDebugUtilsMessengerEXT)     \
    X(vkCmdBeginDebugUtilsLabelEXT)        \
    X(vkCmdEndDebugUtilsLabelEXT)          \
    X(vkSetDebugUtilsObjectNameEXT)

#define VKF_DEVICE_FUNCTIONS(X)      \
    X(vkDestroyDevice)               \
    X(vkGetDeviceQueue)              \
    X(vkQueueSubmit)                 \
    X(vkQueueWaitIdle)               \
    X(vkAllocateMemory)              \
    X(vkFreeMemory)                  \
    X(vkMapMemory)                   \
    X(vkCreateBuffer)                \
    X(vkDestroyBuffer)               \
    X(vkCreateBufferView)            \
    X(vkDestroyBufferView)           \
    X(vkGetBufferMemoryRequirements) \
    X(vkBindBufferMemory)            \
    X(vkCreateShaderModule)          \
    X(vkDestroyShaderModule)         \
    X(vkCreatePipelineCache)         \
    X(vkDestroyPipelineCache)        \
    X(vkGetPipelineCacheData)        \
    X(vkMergePipelineCaches)         \
    X(vkCreateComputePipelines)      \
    X(vkDestroyPipeline)             \
    X(vkCreatePipelineLayout)        \
    X(vkDestroyPipelineLayout)       \
    X(vkCreateDescriptorSetLayout)   \
    X(vkDestroyDescriptorSetLayout)  \
    X(vkCreateDescriptorPool)        \
    X(vkDestroyDescriptorPool)       \
    X(vkAllocateDescriptorSets)      \
    X(vkUpdateDescriptorSets)        \
    X(vkCreateCommandPool)           \
    X(vkDestroyCommandPool)          \
    X(vkAllocateCommandBuffers)      \
    X(vkBeginCommandBuffer)          \
    X(vkEndCommandBuffer)            \
    X(vkCmdBindPipeline)             \
    X(vkCmdBindDescriptorSets)       \
    X(vkCmdPushConstants)            \
    X(vkCmdDispatch)                 \
    X(vkCmdPipelineBarrier)          \
    X(vkCmdCopyBuffer)               \
    X(vkCmdFillBuffer)               \
    X(vkCmdResetQueryPool)           \
    X(vkCmdWriteTimestamp)           \
    X(vkCreateQueryPool)             \
    X(vkDestroyQueryPool)            \
    X(vkGetQueryPoolResults)         \
    X(vkCreateSemaphore)             \
    X(vkDestroySemaphore)            \
    X(vkCreateFence)                 \
    X(vkDestroyFence)                \
    X(vkResetFences)                 \
    X(vkWaitForFences)

#define VKF_DEVICE_FUNCTIONS_OPTIONAL(X)   \
    X(vkGetMemoryFdKHR)                    \
    X(vkGetMemoryHostPointerPropertiesEXT) \
    X(vkWaitSemaphoresKHR)

#define VKF_MEMBER(name) PFN_##name name = nullptr;

struct InstanceTable {
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
    VKF_INSTANCE_FUNCTIONS(VKF_MEMBER)
    VKF_INSTANCE_FUNCTIONS_OPTIONAL(VKF_MEMBER)
};

struct DeviceTable {
    VKF_DEVICE_FUNCTIONS(VKF_MEMBER)
    VKF_DEVICE_FUNCTIONS_OPTIONAL(VKF_MEMBER)
};

#undef VKF_MEMBER

/// Throws naming a required function that is missing.
InstanceTable load_instance_table(PFN_vkGetInstanceProcAddr get, VkInstance instance);
DeviceTable load_device_table(const InstanceTable& instance, VkDevice device);

/// Gives "VK_ERROR_OUT_OF_DEVICE_MEMORY" for -2, and so on; the number for what is not known here.
std::string result_name(VkResult result);

/// A handle as the 64 bits that debug utilities take.
template <class Handle>
std::uint64_t handle_bits(Handle h) {
    if constexpr (std::is_pointer_v<Handle>) {
        return reinterpret_cast<std::uint64_t>(h);
    } else {
        return h;
    }
}

/// Throws Error with the result's name unless VK_SUCCESS.
inline void check(VkResult result, const char* call) {
    if (result != VK_SUCCESS) {
        throw Error(std::string(call) + " gave " + result_name(result), {}, result);
    }
}

}  // namespace vkf
