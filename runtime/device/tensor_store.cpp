// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/tensor_store.h"

#include <algorithm>
#include <limits>

#include "runtime/base/text.h"
#include "runtime/compile/stored.h"

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

std::uint64_t tensor_bytes(std::span<const std::int64_t> shape, DType dtype) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t bytes = size_of(dtype);
    for (const std::int64_t size : shape) {
        const auto number = static_cast<std::uint64_t>(size);
        if (size < 0 || (number != 0 && bytes > kMost / number)) {
            throw Error("cannot have the shape " + shape_text(shape), "a tensor");
        }
        bytes *= number;
    }
    return bytes;
}

std::shared_ptr<TensorStore> make_state_store(const std::shared_ptr<DeviceCore>& core,
                                              std::span<const StorageInfo> storages) {
    std::vector<StoredTensor> stored;
    for (const StorageInfo& s : storages) {
        if (s.kind != StorageKind::state) {
            continue;
        }
        StoredTensor t = as_declared(s);
        const auto same =
            std::find_if(stored.begin(), stored.end(), [&](const StoredTensor& o) { return o.name == t.name; });
        if (same == stored.end()) {
            stored.push_back(std::move(t));
        } else if (same->shape != t.shape || same->dtype != t.dtype) {
            throw Error("two graphs name it with different shapes or types", "state " + t.name);
        }
    }
    const Capabilities& caps = core->capabilities;
    auto store = std::make_shared<TensorStore>(
        core, WeightLayout(std::move(stored), caps.storage_alignment, caps.max_allocation, "state"), "state");
    store->zero();  // new: nobody uses it yet
    store->uploads_before = core->deferred ? core->deferred->noted() : 0;
    return store;
}

}  // namespace vkf
