// SPDX-License-Identifier: Apache-2.0
#include "c/device.h"

namespace {

using namespace vkf;
using namespace vkf::c;

std::vector<std::int64_t> sizes_of(std::uint32_t rank, const std::int64_t* shape) {
    if (rank == 0) {
        return {};
    }
    need(shape, "shape");
    return {shape, shape + rank};
}

}  // namespace

vkf_result vkf_device_tensor_create(vkf_device* device, vkf_dtype dtype, uint32_t rank, const int64_t* shape,
                                    vkf_device_tensor** tensor) {
    return make(__func__, tensor, [&] {
        return new vkf_device_tensor{need(device, "device").device.make_tensor(sizes_of(rank, shape), dtype_of(dtype))};
    });
}

void vkf_device_tensor_destroy(vkf_device_tensor* tensor) { delete tensor; }

vkf_result vkf_device_tensor_reshape(const vkf_device_tensor* tensor, uint32_t rank, const int64_t* shape,
                                     vkf_device_tensor** reshaped) {
    return make(__func__, reshaped,
                [&] { return new vkf_device_tensor{need(tensor, "tensor").reshape(sizes_of(rank, shape))}; });
}

vkf_result vkf_device_tensor_get(const vkf_device_tensor* tensor, vkf_dtype* dtype, int64_t* shape, uint32_t capacity,
                                 uint32_t* rank, uint64_t* bytes) {
    return guard(__func__, [&] {
        const DeviceTensor& t = need(tensor, "tensor");
        if (shape && t.shape().size() > capacity) {
            throw Error("has " + std::to_string(t.shape().size()) + " dimensions; there is room for " +
                            std::to_string(capacity),
                        "a tensor");
        }
        if (dtype) {
            *dtype = dtype_to_c(t.dtype());
        }
        if (shape) {
            std::copy(t.shape().begin(), t.shape().end(), shape);
        }
        if (rank) {
            *rank = static_cast<std::uint32_t>(t.shape().size());
        }
        if (bytes) {
            *bytes = t.bytes();
        }
    });
}

vkf_result vkf_device_tensor_read(const vkf_device_tensor* tensor, void* to, uint64_t capacity, uint64_t* count) {
    return guard(__func__, [&] {
        const DeviceTensor& t = need(tensor, "tensor");
        auto* bytes = static_cast<std::byte*>(to);
        if (t.bytes() <= capacity) {
            t.read({t.bytes() == 0 ? bytes : &need(bytes, "to"), static_cast<std::size_t>(t.bytes())});
        }
        if (count) {
            *count = t.bytes();
        }
        if (t.bytes() > capacity) {
            throw Error("has " + std::to_string(t.bytes()) + " bytes; there is room for " + std::to_string(capacity),
                        "a tensor");
        }
    });
}

vkf_result vkf_device_tensor_write(vkf_device_tensor* tensor, const void* bytes, uint64_t count) {
    return guard(__func__, [&] {
        const auto* from = static_cast<const std::byte*>(bytes);
        need(tensor, "tensor").write({count == 0 ? from : &need(from, "bytes"), static_cast<std::size_t>(count)});
    });
}
