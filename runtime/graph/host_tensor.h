// SPDX-License-Identifier: Apache-2.0
// A named tensor in host memory that someone else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../base/export.h"
#include "dtype.h"

namespace vkf {

/// A tensor of the host is row-major, outermost dimension first, little-endian, without gaps:
/// `data` holds product(shape) elements, but for packed matrices. An empty shape is a scalar.
/// `data` need not be aligned to the element: read it with memcpy.
struct HostTensor {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> data;
    /// The type that a weight is packed as. Where this is not f32, `data` holds rows of 32-bit
    /// words as packed.h lays them out; `dtype` (F32) and `shape` (rows, columns) then describe the
    /// numbers that the words stand for.
    WeightType type = WeightType::f32;
};

/// Copies a tensor's bytes to where as many fit. Throws Error naming the file where they are of one
/// that was cut short since it was mapped: to read them as memory would end the process.
VKF_API void read_bytes(const HostTensor& tensor, std::span<std::byte> to);

/// Bytes of a tensor; nothing if a size is negative or the bytes pass what 64 signed bits count. A
/// size of 0 hides no overflow of the others, so that strides computed from an accepted shape
/// cannot overflow either.
constexpr std::optional<std::uint64_t> byte_size(DType dtype, std::span<const std::int64_t> shape) {
    std::uint64_t bytes = size_of(dtype);
    bool empty = false;
    for (const std::int64_t size : shape) {
        if (size < 0) return std::nullopt;
        if (size == 0) {
            empty = true;
            continue;
        }
        const auto factor = static_cast<std::uint64_t>(size);
        if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / factor) return std::nullopt;
        bytes *= factor;
    }
    return empty ? 0 : bytes;
}

}  // namespace vkf
