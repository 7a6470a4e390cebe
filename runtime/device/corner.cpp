// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/corner.h"

#include "runtime/base/text.h"
#include "runtime/device/deferred.h"
#include "runtime/device/downloader.h"

namespace vkf {

namespace {

/// Finds the bytes of the corner of that shape in the tensor's block.
std::vector<ByteRange> ranges_of(const StoredTensor& t, std::span<const std::int64_t> shape) {
    std::vector<ByteRange> ranges{{t.offset, t.bytes}};
    std::uint64_t pitch = t.bytes;
    for (std::size_t dim = 0; dim < shape.size() && pitch > 0; ++dim) {
        const auto all = static_cast<std::uint64_t>(t.shape[dim]), some = static_cast<std::uint64_t>(shape[dim]);
        pitch /= all;
        if (some == all) {
            continue;
        }
        // each range is a number of elements of this dimension, all of them several times over
        std::vector<ByteRange> cut;
        for (const ByteRange& r : ranges) {
            for (std::uint64_t at = 0; at < r.bytes && some > 0; at += all * pitch) {
                cut.push_back({r.offset + at, some * pitch});
            }
        }
        ranges = std::move(cut);
    }
    return ranges;
}

std::uint64_t bytes_of(std::span<const ByteRange> ranges) {
    std::uint64_t sum = 0;
    for (const ByteRange& r : ranges) {
        sum += r.bytes;
    }
    return sum;
}

}  // namespace

std::vector<std::int64_t> corner_of(const StoredTensor& t, std::size_t dim, std::int64_t length) {
    std::vector<std::int64_t> shape = t.shape;
    if (length == -1) {
        return shape;
    }
    if (dim >= t.shape.size() || length < 0 || length > t.shape[dim]) {
        throw Error("is " + shape_text(t.shape) + " and has no " + std::to_string(length) + " elements of dimension " +
                        std::to_string(dim),
                    "state " + t.name);
    }
    shape[dim] = length;
    return shape;
}

std::vector<std::byte> read_corner(const TensorStore& store, const StoredTensor& t,
                                   std::span<const std::int64_t> shape) {
    if (store.core->deferred) {
        throw Error(
            "cannot be read on a device for which the host submits (BorrowedDevice::host_submits): record() a program "
            "that copies it into an output",
            "state " + t.name);
    }
    const std::vector<ByteRange> ranges = ranges_of(t, shape);
    std::vector<std::byte> out(bytes_of(ranges));
    download(store.core, store.blocks[t.block], ranges, out);
    return out;
}

void write_corner(TensorStore& store, const StoredTensor& t, std::span<const std::int64_t> shape,
                  std::span<const std::byte> bytes) {
    const std::vector<ByteRange> ranges = ranges_of(t, shape);
    if (bytes.size() != bytes_of(ranges)) {
        throw Error("is " + shape_text(t.shape) + " " + std::string(name_of(t.dtype)) + ", of which " +
                        std::to_string(bytes_of(ranges)) + " bytes are written; " + std::to_string(bytes.size()) +
                        " were given",
                    "state " + t.name);
    }
    const Block& block = store.blocks[t.block];
    const auto& deferred = store.core->deferred;
    Uploader uploader(store.core, bytes.size());
    for (const ByteRange& r : ranges) {
        // the write comes in order with what the host records, wherever the memory is
        if (deferred) {
            deferred->copy(block.buffer(), r.offset, bytes.first(r.bytes));
        } else {
            uploader.write(block, r.offset, bytes.first(r.bytes));
        }
        bytes = bytes.subspan(r.bytes);
    }
    uploader.finish();
    store.uploads_before = deferred ? deferred->noted() : 0;
}

}  // namespace vkf
