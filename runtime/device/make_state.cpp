// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/make_state.h"

#include <algorithm>

#include "runtime/device/insides.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

State make_state_of(const std::shared_ptr<DeviceCore>& core, std::span<const StorageInfo> storages) {
    std::vector<StoredTensor> stored;
    for (const StorageInfo& s : storages) {
        if (s.kind != StorageKind::state) {
            continue;
        }
        StoredTensor t{s.name, s.dtype, {}, 0, 0, size_of(s.dtype)};
        for (const Dim& d : s.shape) {
            t.shape.push_back(d.constant());
            t.bytes *= static_cast<std::uint64_t>(d.constant());
        }
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
    return Insides::make<State>(std::move(store));
}

}  // namespace vkf
