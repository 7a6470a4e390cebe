// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/state.h"

#include "runtime/base/text.h"
#include "runtime/device/deferred.h"
#include "runtime/device/downloader.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

namespace {

/// Where the part of a tensor lies in its block.
std::vector<ByteRange> ranges_of(const StoredTensor& t, const StatePart& part) {
    if (part.length < 0) {
        return {{t.offset, t.bytes}};
    }
    if (part.dim >= t.shape.size() || part.length > t.shape[part.dim]) {
        throw Error("is " + shape_text(t.shape) + " and has no " + std::to_string(part.length) +
                        " elements of dimension " + std::to_string(part.dim),
                    "state " + t.name);
    }
    std::uint64_t outer = 1, inner = size_of(t.dtype);
    for (std::size_t i = 0; i < t.shape.size(); ++i) {
        (i < part.dim ? outer : inner) *= i == part.dim ? 1 : static_cast<std::uint64_t>(t.shape[i]);
    }
    const std::uint64_t pitch = inner * static_cast<std::uint64_t>(t.shape[part.dim]);
    std::vector<ByteRange> out;
    for (std::uint64_t i = 0; i < outer && part.length > 0; ++i) {
        out.push_back({t.offset + i * pitch, inner * static_cast<std::uint64_t>(part.length)});
    }
    return out;
}

std::uint64_t bytes_of(std::span<const ByteRange> ranges) {
    std::uint64_t sum = 0;
    for (const ByteRange& r : ranges) {
        sum += r.bytes;
    }
    return sum;
}

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
    const std::vector<ByteRange> ranges = ranges_of(t, part);
    std::vector<std::byte> out(bytes_of(ranges));
    download(store_->core, store_->blocks[t.block], ranges, out);
    return out;
}

void State::write(std::string_view name, std::span<const std::byte> bytes, StatePart part) {
    const StoredTensor& t = named(layout(), name);
    const std::vector<ByteRange> ranges = ranges_of(t, part);
    if (bytes.size() != bytes_of(ranges)) {
        throw Error("is " + shape_text(t.shape) + " " + std::string(name_of(t.dtype)) + ", of which " +
                        std::to_string(bytes_of(ranges)) + " bytes are written; " + std::to_string(bytes.size()) +
                        " were given",
                    "state " + t.name);
    }
    const Block& block = store_->blocks[t.block];
    const auto& deferred = store_->core->deferred;
    Uploader uploader(store_->core, bytes.size());
    for (const ByteRange& r : ranges) {
        if (deferred) {  // in order with what the host records, wherever the memory is
            deferred->copy(block.buffer(), r.offset, bytes.first(r.bytes));
        } else {
            uploader.write(block, r.offset, bytes.first(r.bytes));
        }
        bytes = bytes.subspan(r.bytes);
    }
    uploader.finish();
    store_->uploads_before = deferred ? deferred->noted() : 0;
}

const StoredTensor* State::find(std::string_view name) const { return store_ ? store_->layout.find(name) : nullptr; }

std::uint64_t State::bytes() const { return store_ ? store_->layout.bytes() : 0; }

void State::clear() {
    if (!store_) {
        return;
    }
    // in order with what the host records, wherever the memory is
    if (const auto& deferred = store_->core->deferred) {
        for (const Block& b : store_->blocks) {
            deferred->zero(b.buffer(), 0, b.bytes());
        }
        store_->uploads_before = deferred->noted();
        return;
    }
    store_->zero();
}

}  // namespace vkf
