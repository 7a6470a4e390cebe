// SPDX-License-Identifier: Apache-2.0
// A tensor that passes from program to program without leaving the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../base/export.h"
#include "../graph/dtype.h"

namespace vkf {

class Device;
struct TensorStore;

/// Elements in device memory, dense and row-major: Device::make_tensor() makes them, and
/// Program::bind() lets programs read and write them there. Copies share the memory, which lives as
/// long as a copy, or a program that it is bound to. read() and write() come in turn with the runs
/// of a device with a queue: behind those that were submitted before. They must not be called while
/// another thread submits a run of several submissions, nor read() while one submits a run that
/// writes the tensor, nor either while a recording that the host submits uses it.
class VKF_API DeviceTensor {
public:
    /// No tensor.
    DeviceTensor() = default;

    explicit operator bool() const noexcept { return store_ != nullptr; }
    DType dtype() const noexcept { return dtype_; }
    const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
    std::uint64_t bytes() const noexcept { return bytes_; }
    /// The device that it lies on. Throws Error where there is no tensor.
    Device device() const;
    /// The same memory under another shape. Throws Error where that has another number of elements.
    DeviceTensor reshape(std::vector<std::int64_t> shape) const;

    /// The elements as they lie on the device, bit for bit. Waits for the queue.
    std::vector<std::byte> read() const;
    /// Reads into the caller's memory, which must have exactly that many bytes.
    void read(std::span<std::byte> to) const;
    /// Writes all elements, and waits until that is done; while a program has the tensor, for the
    /// queue too: runs that were submitted before read what was there. No run may see a part, so
    /// that is one submission, whose staging memory is as large as the tensor, whatever
    /// DeviceOptions::staging_bytes is. Throws Error where there is another number of bytes.
    void write(std::span<const std::byte> bytes);

private:
    friend class Device;
    friend struct Insides;
    DeviceTensor(std::shared_ptr<TensorStore> store, DType dtype, std::vector<std::int64_t> shape, std::uint64_t bytes)
        : store_(std::move(store)), dtype_(dtype), shape_(std::move(shape)), bytes_(bytes) {}
    /// The memory; throws Error where there is none.
    TensorStore& store() const;

    std::shared_ptr<TensorStore> store_;
    DType dtype_ = DType::f32;
    std::vector<std::int64_t> shape_;
    std::uint64_t bytes_ = 0;
};

}  // namespace vkf
