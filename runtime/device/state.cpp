// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/state.h"

#include "runtime/device/corner.h"
#include "runtime/device/deferred.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

namespace {

const StoredTensor& named(const WeightLayout& layout, std::string_view name) {
    if (const StoredTensor* t = layout.find(name)) {
        return *t;
    }
    std::string known;
    for (const StoredTensor& t : layout.tensors()) {
        known += (known.empty() ? "" : ", ") + t.name;
    }
    throw Error("there is no such state; there are: " + (known.empty() ? "none" : known), "state " + std::string(name));
}

}  // namespace

const WeightLayout& State::layout() const noexcept { return store_ ? store_->layout : WeightLayout::none(); }

std::vector<std::byte> State::read(std::string_view name, StatePart part) const {
    const StoredTensor& t = named(layout(), name);
    return read_corner(*store_, t, corner_of(t, part.dim, part.length));
}

void State::write(std::string_view name, std::span<const std::byte> bytes, StatePart part) {
    const StoredTensor& t = named(layout(), name);
    write_corner(*store_, t, corner_of(t, part.dim, part.length), bytes);
}

const StoredTensor* State::find(std::string_view name) const { return store_ ? store_->layout.find(name) : nullptr; }

std::uint64_t State::bytes() const { return store_ ? store_->layout.bytes() : 0; }

void State::clear() {
    if (!store_) {
        return;
    }
    // The zeros come in order with what the host records, wherever the memory is.
    if (const auto& deferred = store_->core->deferred) {
        store_->core->check_alive();
        for (const Block& b : store_->blocks) {
            deferred->zero(b.buffer(), 0, b.bytes());
        }
        store_->uploads_before = deferred->noted();
        return;
    }
    store_->zero();
}

}  // namespace vkf
