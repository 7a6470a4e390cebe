// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits, f16 and bf16, to and from fp32 on the host. Kernels make the same bits:
// shaders/common/sixteen.glsl.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/graph/dtype.h"

namespace vkf {

/// The types that stand for fp32 numbers and are converted into each other.
constexpr bool is_floating(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

namespace sixteen {

inline constexpr std::uint32_t kSign = 0x80000000u;
inline constexpr std::uint32_t kInfinity = 0x7f800000u;
inline constexpr std::uint32_t kQuietHalf = 0x7e00u;
inline constexpr std::uint32_t kHalfInfinity = 0x7c00u;

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

inline float from_half(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= kHalfInfinity) {
        return std::bit_cast<float>(sign | kInfinity | magnitude << 13);
    }
    if (magnitude < 0x0400u) {
        const float small = static_cast<float>(magnitude) * 0x1p-24f;
        return std::bit_cast<float>(sign | bits_of(small));
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

inline std::uint16_t to_half(float x) {
    const std::uint32_t sign = bits_of(x) >> 16 & 0x8000u;
    std::uint32_t magnitude = bits_of(x) & ~kSign;
    if (magnitude > kInfinity) {
        return static_cast<std::uint16_t>(sign | kQuietHalf);
    }
    if (magnitude >= bits_of(65520.0f)) {
        return static_cast<std::uint16_t>(sign | kHalfInfinity);
    }
    // a multiple of 2^-24, which is what the last bit of 0.5 stands for
    if (magnitude < bits_of(0x1p-14f)) {
        return static_cast<std::uint16_t>(sign | (bits_of(std::bit_cast<float>(magnitude) + 0.5f) - bits_of(0.5f)));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | (magnitude - (112u << 23)) >> 13);
}

inline std::uint16_t to_bf16(float x) {
    std::uint32_t bits = bits_of(x);
    if ((bits & ~kSign) > kInfinity) {
        return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    }
    bits += 0x7fffu + (bits >> 16 & 1u);
    return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace sixteen

/// Rounds to the nearest, ties to even; NaN stays NaN, and f16 is infinite where the magnitude is
/// 65520 or more.
inline std::uint16_t narrowed(DType type, float x) {
    return type == DType::f16 ? sixteen::to_half(x) : sixteen::to_bf16(x);
}

/// Widens exactly; a NaN keeps its bits.
inline float widened(DType type, std::uint16_t bits) {
    return type == DType::f16 ? sixteen::from_half(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// Narrows many numbers; `bytes` has two for each, at any address.
inline void narrow(DType type, std::span<const float> numbers, std::byte* bytes) {
    for (const float x : numbers) {
        const std::uint16_t bits = narrowed(type, x);
        std::memcpy(bytes, &bits, sizeof(bits));
        bytes += sizeof(bits);
    }
}

inline void widen(DType type, const std::byte* bytes, std::span<float> numbers) {
    for (float& x : numbers) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes, sizeof(bits));
        bytes += sizeof(bits);
        x = widened(type, bits);
    }
}

}  // namespace vkf
