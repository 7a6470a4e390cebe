// SPDX-License-Identifier: Apache-2.0
// Which of a processor's kernels for products a device takes.
#pragma once

#include <cstdint>

#include "ops/lanes.h"

namespace vkf {

inline bool takes_wide_lanes(const Capabilities& device) {
    return device.int64 && !device.leaves_out("matmul_lanes8_wide");
}

/// Lanes of a processor's subgroups that they rely on; 0: none, or those kernels are left out.
inline std::uint32_t matmul_lanes(const Capabilities& device) {
    if (!hands_round(device)) {
        return 0;
    }
    const std::uint32_t lanes = device.exact_subgroup_size;
    const bool left_out = lanes == 4   ? device.leaves_out("matmul_lanes4")
                          : lanes == 8 ? device.leaves_out("matmul_lanes8") && !takes_wide_lanes(device)
                                       : false;
    return left_out ? 0 : lanes;
}

}  // namespace vkf
