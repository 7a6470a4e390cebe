// SPDX-License-Identifier: Apache-2.0
// What is enabled on a device: asked for when we make it or when a host will, and read back from what a host asked for.
#pragma once

#include "runtime/device.h"
#include "runtime/vulkan.h"

namespace vkf {

void keep_enabled(Capabilities& capabilities, const VkDeviceCreateInfo* created_with);

}  // namespace vkf
