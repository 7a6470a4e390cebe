// SPDX-License-Identifier: Apache-2.0
// What a Device, and everything made from it, stands on.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device/deferred.h"
#include "runtime/device/left_out_store.h"
#include "runtime/device/pipeline.h"
#include "runtime/device/vulkan_device.h"

namespace vkf {

struct DeviceCore : VulkanDevice {
    std::unique_ptr<PipelineStore> pipelines;
    /// uploads of a device for which the host submits; else null
    std::unique_ptr<Deferred> deferred;
    LeftOutSince left_out_since;

    /// The kernels that no program is given from now on.
    std::vector<LeftOut> left_out() const { return left_out_since.behind(capabilities.left_out); }
};

}  // namespace vkf
