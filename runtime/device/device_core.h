// SPDX-License-Identifier: Apache-2.0
// What a Device, and everything made from it, stands on.
#pragma once

#include <memory>

#include "runtime/device/deferred.h"
#include "runtime/device/pipeline.h"
#include "runtime/device/vulkan_device.h"

namespace vkf {

struct DeviceCore : VulkanDevice {
    std::unique_ptr<PipelineStore> pipelines;
    /// uploads of a device for which the host submits; else null
    std::unique_ptr<Deferred> deferred;
};

}  // namespace vkf
