// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_tensor.h"

#include "runtime/base/text.h"
#include "runtime/device/downloader.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

TensorStore& DeviceTensor::store() const {
    if (!store_) {
        throw Error("there is no tensor", "DeviceTensor");
    }
    return *store_;
}

DeviceTensor DeviceTensor::reshape(std::vector<std::int64_t> shape) const {
    store();
    if (tensor_bytes(shape, dtype_) != bytes_) {
        throw Error("is " + shape_text(shape_) + ", and cannot be " + shape_text(shape), "a tensor");
    }
    return {store_, dtype_, std::move(shape), bytes_};
}

std::vector<std::byte> DeviceTensor::read() const {
    std::vector<std::byte> out(bytes_);
    read(out);
    return out;
}

void DeviceTensor::read(std::span<std::byte> to) const {
    const TensorStore& from = store();
    if (to.size() != bytes_) {
        throw Error("is " + shape_text(shape_) + " " + std::string(name_of(dtype_)) + " of " + std::to_string(bytes_) +
                        " bytes; there is room for " + std::to_string(to.size()),
                    "a tensor");
    }
    const ByteRange all{0, bytes_};
    download(from.core, from.blocks.front(), {&all, 1}, to);
}

void DeviceTensor::write(std::span<const std::byte> bytes) {
    const TensorStore& to = store();
    if (bytes.size() != bytes_) {
        throw Error("is " + shape_text(shape_) + " " + std::string(name_of(dtype_)) + " of " + std::to_string(bytes_) +
                        " bytes; " + std::to_string(bytes.size()) + " were given",
                    "a tensor");
    }
    Uploader uploader(to.core, bytes.size());
    if (to.bound != 0) {
        uploader.write_in_turn(to.blocks.front(), bytes);
    } else {
        uploader.write(to.blocks.front(), 0, bytes);
    }
    uploader.finish();
}

}  // namespace vkf
