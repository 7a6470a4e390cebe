// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/vulkan.h"

namespace vkf {

InstanceTable load_instance_table(PFN_vkGetInstanceProcAddr get, VkInstance instance) {
    InstanceTable table;
    table.vkGetInstanceProcAddr = get;
#define VKF_LOAD_OPTIONAL(name) table.name = reinterpret_cast<PFN_##name>(get(instance, #name));
#define VKF_LOAD(name)                                             \
    VKF_LOAD_OPTIONAL(name)                                        \
    if (!table.name) {                                             \
        throw Error("the Vulkan instance has no function " #name); \
    }
    VKF_INSTANCE_FUNCTIONS(VKF_LOAD)
    VKF_INSTANCE_FUNCTIONS_OPTIONAL(VKF_LOAD_OPTIONAL)
#undef VKF_LOAD
#undef VKF_LOAD_OPTIONAL
    return table;
}

DeviceTable load_device_table(const InstanceTable& instance, VkDevice device) {
    DeviceTable table;
#define VKF_LOAD(name)                                                                      \
    table.name = reinterpret_cast<PFN_##name>(instance.vkGetDeviceProcAddr(device, #name)); \
    if (!table.name) {                                                                      \
        throw Error("the Vulkan device has no function " #name);                            \
    }
    VKF_DEVICE_FUNCTIONS(VKF_LOAD)
#undef VKF_LOAD
#define VKF_LOAD(name) table.name = reinterpret_cast<PFN_##name>(instance.vkGetDeviceProcAddr(device, #name));
    VKF_DEVICE_FUNCTIONS_OPTIONAL(VKF_LOAD)
#undef VKF_LOAD
    return table;
}

std::string result_name(VkResult result) {
    switch (result) {
#define VKF_CASE(name) \
    case name: return #name;
        VKF_CASE(VK_SUCCESS)
        VKF_CASE(VK_NOT_READY)
        VKF_CASE(VK_TIMEOUT)
        VKF_CASE(VK_INCOMPLETE)
        VKF_CASE(VK_ERROR_OUT_OF_HOST_MEMORY)
        VKF_CASE(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        VKF_CASE(VK_ERROR_INITIALIZATION_FAILED)
        VKF_CASE(VK_ERROR_DEVICE_LOST)
        VKF_CASE(VK_ERROR_MEMORY_MAP_FAILED)
        VKF_CASE(VK_ERROR_LAYER_NOT_PRESENT)
        VKF_CASE(VK_ERROR_EXTENSION_NOT_PRESENT)
        VKF_CASE(VK_ERROR_FEATURE_NOT_PRESENT)
        VKF_CASE(VK_ERROR_INCOMPATIBLE_DRIVER)
        VKF_CASE(VK_ERROR_TOO_MANY_OBJECTS)
        VKF_CASE(VK_ERROR_FORMAT_NOT_SUPPORTED)
        VKF_CASE(VK_ERROR_FRAGMENTED_POOL)
        VKF_CASE(VK_ERROR_OUT_OF_POOL_MEMORY)
        VKF_CASE(VK_ERROR_FRAGMENTATION)
        VKF_CASE(VK_ERROR_INVALID_EXTERNAL_HANDLE)
        VKF_CASE(VK_ERROR_UNKNOWN)
#undef VKF_CASE
        default: return "VkResult " + std::to_string(static_cast<int>(result));
    }
}

}  // namespace vkf
