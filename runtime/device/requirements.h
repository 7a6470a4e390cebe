// SPDX-License-Identifier: Apache-2.0
// What is to be enabled on a device, by us or by a host that makes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../base/export.h"
#include "../compile/capabilities.h"

namespace vkf {

/// One thing a device can do that a host must, or may, turn on before vkformer borrows it.
struct DeviceRequirement {
    std::string name;  ///< an extension, or "Struct::member" of a feature
    /// true: without it borrow(), or what is asked of the device, fails; false: it is only of use
    bool required = false;
    /// the use of it, for people
    std::string buys;
    bool extension = false;  ///< false: it is a feature
};

/// The extensions and features to put into VkDeviceCreateInfo: only those that the device has.
class VKF_API DeviceRequirements {
public:
    const std::vector<DeviceRequirement>& list() const noexcept { return list_; }
    /// Names for ppEnabledExtensionNames, valid as long as this object lives. With `wished` false,
    /// only those that are required.
    std::vector<const char*> extensions(bool wished = true) const;
    /// Feature structs to chain in VkDeviceCreateInfo::pNext, ending in `next`; they live in this
    /// object. The first is a VkPhysicalDeviceFeatures2, so pEnabledFeatures stays null. A host
    /// with a chain of its own sets the members list() names; in VkPhysicalDeviceVulkan11Features
    /// to VkPhysicalDeviceVulkan13Features, which Vulkan does not allow beside these structs, those
    /// of the same names.
    const void* features(const void* next = nullptr);
    /// A line for each, for people.
    std::string str() const;

    explicit DeviceRequirements(const Capabilities& supported);
    DeviceRequirements(DeviceRequirements&&) noexcept;
    DeviceRequirements& operator=(DeviceRequirements&&) noexcept;
    ~DeviceRequirements();

private:
    struct Features;
    std::vector<DeviceRequirement> list_;
    std::unique_ptr<Features> features_;
};

}  // namespace vkf
