// SPDX-License-Identifier: Apache-2.0
// What the lanes of a processor's subgroups can do together.
#pragma once

#include "runtime/compile/capabilities.h"

namespace vkf {

/// Whether lanes of a processor hand numbers round (shaders/common/lanes.glsl): subgroups have one
/// size, two lanes or more, and shuffles; four lanes also exchanges within quads.
inline bool hands_round(const Capabilities& device) {
    return device.cpu() && device.subgroup_shuffle && device.exact_subgroup_size > 1 &&
           (device.exact_subgroup_size != 4 || device.subgroup_quad);
}

}  // namespace vkf
