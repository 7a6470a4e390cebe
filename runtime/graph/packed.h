// SPDX-License-Identifier: Apache-2.0
// How matrices of weights lie in device memory.
// For op authors: <vkformer/advanced/packed.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "../base/export.h"
#include "dtype.h"
#include "host_tensor.h"

namespace vkf {

/// The type that keeps a matrix of such numbers without converting them.
constexpr WeightType kept_as(DType dtype) {
    return dtype == DType::f16 ? WeightType::f16 : dtype == DType::bf16 ? WeightType::bf16 : WeightType::f32;
}

/// Number of 32-bit words of a row of `columns` numbers; a multiple of 4. Not for f32.
VKF_API std::uint64_t packed_row_words(WeightType type, std::uint64_t columns);

/// Bytes that the tensor's shape and types call for; nothing if a size is negative, the bytes pass
/// what 64 signed bits count, or it is packed and no matrix of F32.
VKF_API std::optional<std::uint64_t> byte_size(const HostTensor& tensor);

/// True for a matrix that can be kept as another type than its own: of rank 2, floating, not empty,
/// not packed yet.
VKF_API bool packable(const HostTensor& tensor);

/// Packs rows first..first + words.size() / packed_row_words() - 1 of a packable tensor, as
/// shaders/common/packed.h lays them out. Throws Error, naming the tensor, for a number that `type`
/// cannot hold: in int8 and int4 one that is not finite, or of magnitude 2^127 or more; in f16 and
/// bf16 a finite one that would become infinite.
VKF_API void pack_rows(const HostTensor& tensor, WeightType type, std::int64_t first, std::span<std::uint32_t> words);

/// Throws as pack_rows() does for these rows, without packing them.
VKF_API void require_packable(const HostTensor& tensor, WeightType type, std::int64_t first, std::uint64_t rows);

/// True where the file's numbers are those of the type, and nothing is converted.
VKF_API bool same_format(DType from, WeightType to);

/// Converts elements first..first + numbers.size() - 1 of a tensor of f32, f16 or bf16 that is not
/// packed to fp32, exactly.
VKF_API void widen(const HostTensor& tensor, std::int64_t first, std::span<float> numbers);
/// All of its numbers, as fp32. The tensor is not packed.
VKF_API std::vector<float> widened_numbers(const HostTensor& tensor);

}  // namespace vkf
