// SPDX-License-Identifier: Apache-2.0
// Floats ordered by integers: flipped bits order negatives below positives, and a NaN above all,
// without a floating comparison that might drop it. Include it after common/numeric.glsl.
#ifndef VKF_SHADERS_COMMON_ORDER_GLSL
#define VKF_SHADERS_COMMON_ORDER_GLSL

// No number has the key 0.
uint order_key(float v) {
    uint bits = floatBitsToUint(v);
    if ((bits & kMagnitudeBits) > kInfinityBits) {
        return ~0u;
    }
    bits = bits == kSignBit ? 0u : bits;  // -0 equals +0
    return (bits & kSignBit) != 0u ? ~bits : bits | kSignBit;
}

// The number that has this key: +0 for zeros, a quiet NaN for NaN.
float ordered_float(uint key) {
    uint bits = (key & kSignBit) != 0u ? key ^ kSignBit : ~key;
    return uintBitsToFloat(key == ~0u ? kNanBits : bits);
}

#endif
