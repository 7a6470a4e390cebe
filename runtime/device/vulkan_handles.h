// SPDX-License-Identifier: Apache-2.0
// Vulkan's handle types without Vulkan's headers, so that a host may include its own before or
// after ours. For C and C++.
#ifndef VKFORMER_VULKAN_HANDLES_H
#define VKFORMER_VULKAN_HANDLES_H

#include <stdint.h>

#ifndef VULKAN_CORE_H_
#ifdef __cplusplus
extern "C" {
#endif
typedef struct VkInstance_T* VkInstance;
typedef struct VkPhysicalDevice_T* VkPhysicalDevice;
typedef struct VkDevice_T* VkDevice;
typedef struct VkQueue_T* VkQueue;
typedef struct VkCommandBuffer_T* VkCommandBuffer;
typedef struct VkDeviceCreateInfo VkDeviceCreateInfo;
#if defined(__LP64__) || defined(_WIN64) || (defined(__x86_64__) && !defined(__ILP32__)) || defined(_M_X64) || \
    defined(__aarch64__) || defined(_M_ARM64) || (defined(__riscv) && __riscv_xlen == 64) || defined(__powerpc64__)
typedef struct VkBuffer_T* VkBuffer;
typedef struct VkDeviceMemory_T* VkDeviceMemory;
typedef struct VkImageView_T* VkImageView;
typedef struct VkPipelineCache_T* VkPipelineCache;
typedef struct VkSemaphore_T* VkSemaphore;
#else
typedef uint64_t VkBuffer;
typedef uint64_t VkDeviceMemory;
typedef uint64_t VkImageView;
typedef uint64_t VkPipelineCache;
typedef uint64_t VkSemaphore;
#endif
#ifdef __cplusplus
}
#endif
#endif

#if defined(__cplusplus) && __cplusplus >= 201103L
namespace vkf {

/// Works as vkGetInstanceProcAddr, which is cast to it.
using GetInstanceProcAddr = void (*(*)(VkInstance, const char*))(void);

}  // namespace vkf
#endif

#endif
