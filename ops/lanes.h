// SPDX-License-Identifier: Apache-2.0
// What the lanes of a processor's subgroups can do together.
#pragma once

#include <cstdint>

#include "runtime/compile/capabilities.h"
#include "runtime/compile/kernel.h"

namespace vkf {

/// Whether lanes of a processor hand numbers round (shaders/common/lanes.glsl): subgroups have one
/// size, two lanes or more, and shuffles; four lanes also exchanges within quads.
inline bool hands_round(const Capabilities& device) {
    return device.cpu() && device.subgroup_shuffle && device.exact_subgroup_size > 1 &&
           (device.exact_subgroup_size != 4 || device.subgroup_quad);
}

/// The kernel for subgroups of so many lanes: of 8 where a device has 64-bit integers the one that
/// loads 8 bytes at a time. Null: there are none for so many, or they are left out.
inline const Shader* kernel_for_lanes(const Capabilities& device, std::uint32_t lanes, const Shader& four,
                                      const Shader& eight, const Shader& eight_wide) {
    if (lanes == 8 && device.int64 && !device.leaves_out(eight_wide.name)) {
        return &eight_wide;
    }
    const Shader* kernel = lanes == 4 ? &four : lanes == 8 ? &eight : nullptr;
    return kernel && !device.leaves_out(kernel->name) ? kernel : nullptr;
}

/// Whether the device is SwiftShader, as far as capabilities tell: four lanes, and no 64-bit
/// integers.
inline bool like_swiftshader(const Capabilities& device) {
    return device.cpu() && device.exact_subgroup_size == 4 && !device.int64;
}

/// What to ask about the loops of a kernel that is made for GPUs. A processor takes it where it is
/// forced, or where nothing is known of its subgroups.
inline Loops loops_on(const Capabilities& device) {
    if (!device.cpu()) {
        return Loops::as_written;
    }
    return like_swiftshader(device) ? Loops::all_kept : Loops::kept;
}

}  // namespace vkf
