// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the bits of fp32 numbers, where host and devices must agree to the last one: Vulkan
// lets a division err by 2.5 units in the last place, and a device may take numbers below 2^-126
// for 0.
#ifndef VKF_SHADERS_COMMON_QUANTIZE_H
#define VKF_SHADERS_COMMON_QUANTIZE_H

#include "types.h"

VKF_CONSTANT(kSmallestNormalBits, 0x00800000u)
VKF_CONSTANT(kFractionBits, 0x007fffffu)

#ifdef __cplusplus
#include <bit>
namespace vkf::shader {
inline int findMSB(uint x) { return 31 - std::countl_zero(x); }
#endif

// The number that these are the bits of, or 0 below 2^-126; not for negative ones.
VKF_FUNCTION uint normal_or_zero(uint bits) {
    return bits < kSmallestNormalBits ? 0u : bits;
}

// int4's scale of numbers from -low to high, as bits: (low + high) / 15, exactly, rounded up to 20
// significant bits; 0 below 2^-126. Both are bits of finite numbers, 0 or 2^-126 and more.
VKF_FUNCTION uint group_scale_of(uint low, uint high) {
    uint large = low > high ? low : high;
    uint small = low > high ? high : low;
    if (large == 0u) {
        return 0u;
    }
    // in units of 2^-28 of the larger one's power of two, rounded up: what rounds up later sees no
    // difference
    uint exponent_gap = (large >> 23) - (small >> 23);
    uint sum = ((large & kFractionBits) | kSmallestNormalBits) << 5;
    uint added = small == 0u ? 0u : ((small & kFractionBits) | kSmallestNormalBits) << 5;
    sum += exponent_gap < 31u ? (added + (1u << exponent_gap) - 1u) >> exponent_gap : (added != 0u ? 1u : 0u);
    uint steps = (sum + 14u) / 15u;  // 2^24 and more
    uint drop = uint(findMSB(steps)) - 19u;
    uint kept = (steps + (1u << drop) - 1u) >> drop;  // 2^19 to 2^20
    int exponent = int(large >> 23) + int(drop) - 9;
    return exponent < 0 ? 0u : normal_or_zero((uint(exponent) << 23) + (kept << 4) - kSmallestNormalBits);
}

#ifdef __cplusplus
}
#endif

#endif
