// SPDX-License-Identifier: Apache-2.0
// What a device says of itself, as Capabilities.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/compile/capabilities.h"
#include "runtime/device/vulkan.h"

namespace vkf {

constexpr std::uint32_t kAnyFamily = ~0u;

/// Reads properties and features, with queues of that family; kAnyFamily becomes the one to use.
/// nullopt when the device or the family is unusable here. Throws where the instance was not made
/// for Vulkan 1.1.
std::optional<Capabilities> query_capabilities(const InstanceTable& api, VkPhysicalDevice physical,
                                               std::uint32_t& queue_family, std::uint32_t instance_version);

/// True where the device offers the extension. Throws where the device does not say.
bool has_extension(const InstanceTable& api, VkPhysicalDevice physical, const char* name);

/// One structure of what VkPhysicalDeviceFeatures2 chains, as the device fills it.
template <class Features>
Features features_of(const InstanceTable& api, VkPhysicalDevice physical, VkStructureType type) {
    Features out{};
    out.sType = type;
    VkPhysicalDeviceFeatures2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    all.pNext = &out;
    api.vkGetPhysicalDeviceFeatures2(physical, &all);
    return out;
}

/// Reads the same from VkPhysicalDeviceProperties2.
template <class Properties>
Properties properties_of(const InstanceTable& api, VkPhysicalDevice physical, VkStructureType type) {
    Properties out{};
    out.sType = type;
    VkPhysicalDeviceProperties2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    all.pNext = &out;
    api.vkGetPhysicalDeviceProperties2(physical, &all);
    return out;
}

/// Sets what Capabilities says of cooperative matrices; `c` has its subgroup_size already.
void query_matrices(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c);

}  // namespace vkf
