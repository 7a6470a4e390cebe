// SPDX-License-Identifier: Apache-2.0
// Limits Capabilities to what the host enabled.
#pragma once

#include "runtime/compile/capabilities.h"
#include "runtime/device/vulkan.h"

namespace vkf {

/// Takes out of `capabilities` whatever the host did not turn on; null: it told nothing.
void keep_enabled(Capabilities& capabilities, const VkDeviceCreateInfo* created_with);

}  // namespace vkf
