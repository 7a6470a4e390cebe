// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/tensor_store.h"

namespace vkf {

TensorStore::TensorStore(std::shared_ptr<DeviceCore> device, WeightLayout tensors, const std::string& purpose)
    : core(std::move(device)), layout(std::move(tensors)) {
    for (const std::uint64_t bytes : layout.blocks()) {
        blocks.emplace_back(core, bytes, MemoryUse::device, purpose);
    }
}

void TensorStore::zero() {
    Uploader uploader(core, 0);
    for (const Block& b : blocks) {
        uploader.zero(b, 0, b.bytes());
    }
    uploader.finish();
}

}  // namespace vkf
