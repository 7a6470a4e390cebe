// SPDX-License-Identifier: Apache-2.0
// How matrices of weights lie in device memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dtype.h"
#include "export.h"
#include "host_tensor.h"

namespace vkf {

/// What a matrix (out, in) of weights is kept as. To graphs its numbers stay fp32: kernels unpack them as they read, and
/// accumulate in fp32. Exact formulas: docs/numerics.md.
enum class WeightType : std::uint8_t {
    f32,
    f16,   ///< 2 bytes a weight
    bf16,  ///< 2 bytes a weight
    int8,  ///< 1 byte a weight, and a scale a row
    int4,  ///< 5 bits a weight: 4, and a scale and zero point for every 32 of a row
};

constexpr std::string_view name_of(WeightType type) {
    switch (type) {
        case WeightType::f32: return "f32";
        case WeightType::f16: return "f16";
        case WeightType::bf16: return "bf16";
        case WeightType::int8: return "int8";
        case WeightType::int4: return "int4";
    }
    return "?";
}

/// 32-bit words of a row of so many columns; a multiple of 4. Not for f32.
VKF_API std::uint64_t packed_row_words(WeightType type, std::uint64_t columns);

/// A matrix that can lie in another type than its own: of rank 2, floating, not empty.
VKF_API bool packable(const HostTensor& tensor);

/// Rows first..first + words.size() / packed_row_words() - 1 of a packable tensor, as shaders/common/packed.h lays them out.
/// Throws Error, naming the tensor, for a number that `type` cannot hold: in int8 and int4 one that is not finite, or of
/// magnitude 2^127 or more; in f16 and bf16 a finite one that would become infinite.
VKF_API void pack_rows(const HostTensor& tensor, WeightType type, std::int64_t first, std::span<std::uint32_t> words);

/// Elements first..first + numbers.size() - 1 of a tensor of f32, f16 or bf16, exactly.
VKF_API void widen(const HostTensor& tensor, std::int64_t first, std::span<float> numbers);

}  // namespace vkf
