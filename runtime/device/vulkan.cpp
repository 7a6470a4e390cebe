// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/vulkan.h"

namespace vkf {

namespace {

PFN_vkVoidFunction required(PFN_vkVoidFunction function, const char* of, const char* name) {
    if (!function) {
        throw Error(std::string("the Vulkan ") + of + " has no function " + name);
    }
    return function;
}

}  // namespace

InstanceTable load_instance_table(PFN_vkGetInstanceProcAddr get, VkInstance instance) {
    InstanceTable table;
    table.vkGetInstanceProcAddr = get;
#define VKF_LOAD(name) table.name = reinterpret_cast<PFN_##name>(required(get(instance, #name), "instance", #name));
    VKF_INSTANCE_FUNCTIONS(VKF_LOAD)
#undef VKF_LOAD
#define VKF_LOAD(name) table.name = reinterpret_cast<PFN_##name>(get(instance, #name));
    VKF_INSTANCE_FUNCTIONS_OPTIONAL(VKF_LOAD)
#undef VKF_LOAD
    return table;
}

DeviceTable load_device_table(const InstanceTable& instance, VkDevice device) {
    DeviceTable table;
    const PFN_vkGetDeviceProcAddr get = instance.vkGetDeviceProcAddr;
#define VKF_LOAD(name) table.name = reinterpret_cast<PFN_##name>(required(get(device, #name), "device", #name));
    VKF_DEVICE_FUNCTIONS(VKF_LOAD)
#undef VKF_LOAD
#define VKF_LOAD(name) table.name = reinterpret_cast<PFN_##name>(get(device, #name));
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
