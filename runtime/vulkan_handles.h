// SPDX-License-Identifier: Apache-2.0
// Vulkan's handle types without Vulkan's headers, so that a host may include its own before or after ours.
#pragma once

#include <cstdint>

#ifndef VULKAN_CORE_H_
extern "C" {
typedef struct VkInstance_T* VkInstance;
typedef struct VkPhysicalDevice_T* VkPhysicalDevice;
typedef struct VkDevice_T* VkDevice;
typedef struct VkQueue_T* VkQueue;
typedef struct VkCommandBuffer_T* VkCommandBuffer;
#if defined(__LP64__) || defined(_WIN64) || defined(__x86_64__) || defined(_M_X64) || defined(__aarch64__) || \
    defined(_M_ARM64) || (defined(__riscv) && __riscv_xlen == 64) || defined(__powerpc64__)
typedef struct VkBuffer_T* VkBuffer;
#else
typedef std::uint64_t VkBuffer;
#endif
}
#endif

namespace vkf {

/// As vkGetInstanceProcAddr; cast yours to it.
using GetInstanceProcAddr = void (*(*)(VkInstance, const char*))(void);

}  // namespace vkf
