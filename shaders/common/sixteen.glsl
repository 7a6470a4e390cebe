// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits, kPackedF16 or kPackedBf16, to and from fp32: bits in, bits out, so that no
// device takes a NaN, an infinity or a subnormal number for another. Tests hold them to
// runtime/graph/sixteen.h, bit for bit.
#ifndef VKF_SHADERS_COMMON_SIXTEEN_GLSL
#define VKF_SHADERS_COMMON_SIXTEEN_GLSL

#include "common/numeric.glsl"
#include "packed.h"

// Rounds to the nearest, ties to even.
uint half_of(uint bits) {
    uint sign = bits >> 16 & 0x8000u;
    uint magnitude = bits & kMagnitudeBits;
    if (magnitude > kInfinityBits) {
        return sign | 0x7e00u;
    }
    if (magnitude >= floatBitsToUint(65520.0)) {
        return sign | 0x7c00u;
    }
    // below 2^-14: a multiple of 2^-24, which is what the last bit of 0.5 stands for
    if (magnitude < 0x38800000u) {
        return sign | (floatBitsToUint(uintBitsToFloat(magnitude) + 0.5) - floatBitsToUint(0.5));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return sign | (magnitude - (112u << 23)) >> 13;
}

uint bfloat_of(uint bits) {
    return (bits & kMagnitudeBits) > kInfinityBits ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

uint narrowed(uint type, uint bits) {
    return type == kPackedF16 ? half_of(bits) : bfloat_of(bits);
}

// Widens exactly.
uint widened(uint type, uint bits) {
    if (type == kPackedBf16) {
        return bits << 16;
    }
    uint sign = (bits & 0x8000u) << 16;
    uint magnitude = bits & 0x7fffu;
    if (magnitude < 0x0400u) {
        return sign | floatBitsToUint(float(magnitude) * uintBitsToFloat(0x33800000u));  // 2^-24
    }
    return sign | (magnitude >= 0x7c00u ? kInfinityBits | magnitude << 13 : (magnitude << 13) + (112u << 23));
}

#endif
