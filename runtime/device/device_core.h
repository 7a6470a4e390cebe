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
    bool profile_by_variable = false;  ///< VKFORMER_PROFILE alone asked for the minimum profile

    /// The kernels that no program is given from now on. Behind Device::give_up_all(), under which
    /// no lock is taken, those that none was given at first.
    std::vector<LeftOut> left_out() const {
        return given_up.of_an_earlier_era() ? capabilities.left_out : left_out_since.behind(capabilities.left_out);
    }
};

}  // namespace vkf
