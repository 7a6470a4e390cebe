// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights.h"

#include <algorithm>

#include "runtime/device_core.h"
#include "runtime/memory.h"

namespace vkf {

namespace {

void sort_by_name(std::vector<StoredTensor>& tensors) {
    std::sort(tensors.begin(), tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

std::shared_ptr<TensorStore> make_store(const std::shared_ptr<DeviceCore>& core, std::vector<StoredTensor> tensors,
                                        const std::string& purpose) {
    auto store = std::make_shared<TensorStore>();
    store->core = core;
    const Capabilities& caps = core->capabilities;
    for (const std::uint64_t bytes : pack(tensors, caps.storage_alignment, caps.max_allocation)) {
        store->blocks.emplace_back(core, bytes, MemoryUse::device, purpose);
    }
    sort_by_name(tensors);
    store->tensors = std::move(tensors);
    return store;
}

}  // namespace

const StoredTensor* Weights::find(std::string_view name) const { return store_ ? store_->find(name) : nullptr; }

std::vector<std::string> Weights::names() const {
    std::vector<std::string> out;
    if (store_) {
        for (const StoredTensor& t : store_->tensors) {
            out.push_back(t.name);
        }
    }
    return out;
}

std::uint64_t Weights::bytes() const { return store_ ? store_->bytes() : 0; }

const StoredTensor* State::find(std::string_view name) const { return store_ ? store_->find(name) : nullptr; }

std::uint64_t State::bytes() const { return store_ ? store_->bytes() : 0; }

void State::clear() {
    if (store_) {
        Uploader uploader(store_->core, 0);
        for (const Block& b : store_->blocks) {
            uploader.zero(b, 0, b.bytes());
        }
        uploader.finish();
    }
}

Weights Device::load(std::span<const HostTensor> tensors) const {
    std::vector<StoredTensor> stored;
    std::uint64_t bytes_in_all = 0;
    for (const HostTensor& t : tensors) {
        const auto bytes = byte_size(t.dtype, t.shape);
        if (!bytes || *bytes != t.data.size()) {
            throw Error("holds " + std::to_string(t.data.size()) + " bytes, its shape says " +
                            (bytes ? std::to_string(*bytes) : "more than can be counted"),
                        "weight " + t.name);
        }
        bytes_in_all += *bytes;
        stored.push_back({t.name, t.dtype, t.shape, 0, 0, *bytes});
    }
    auto store = make_store(core_, stored, "weights");
    for (std::size_t i = 1; i < store->tensors.size(); ++i) {
        if (store->tensors[i - 1].name == store->tensors[i].name) {
            throw Error("is given twice", "weight " + store->tensors[i].name);
        }
    }
    Uploader uploader(core_, bytes_in_all);
    for (const HostTensor& t : tensors) {
        const StoredTensor& at = *store->find(t.name);
        uploader.write(store->blocks[at.block], at.offset, t.data);
    }
    uploader.finish();
    return Weights(std::move(store));
}

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
    State state(make_store(core, std::move(stored), "state"));
    state.clear();
    return state;
}

State Device::make_state(std::initializer_list<const Graph*> graphs) const {
    std::vector<StorageInfo> storages;
    for (const Graph* g : graphs) {
        storages.insert(storages.end(), g->storages().begin(), g->storages().end());
    }
    return make_state_of(core_, storages);
}

}  // namespace vkf
