// SPDX-License-Identifier: Apache-2.0
// Device::load: what tensors become, and how they get there.
#include <algorithm>
#include <map>

#include "runtime/compile/weight_order.h"
#include "runtime/device/deferred.h"
#include "runtime/device/device.h"
#include "runtime/device/insides.h"
#include "runtime/device/packer.h"
#include "runtime/device/tensor_store.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

WeightType as_in_file(DType dtype) {
    return dtype == DType::f16 ? WeightType::f16 : dtype == DType::bf16 ? WeightType::bf16 : WeightType::f32;
}

WeightType type_of(const HostTensor& t, const LoadOptions& options) {
    if (t.type != WeightType::f32) {
        if (options.matrices && *options.matrices != t.type) {
            throw Error("is packed as " + std::string(name_of(t.type)) + "; " +
                            std::string(name_of(*options.matrices)) + " was asked for",
                        "weight " + t.name);
        }
        return t.type;
    }
    if (!packable(t)) {
        return WeightType::f32;
    }
    std::optional<WeightType> type = options.choose ? options.choose(t) : std::nullopt;
    type = type ? type : options.matrices;
    return type ? *type : as_in_file(t.dtype);
}

bool packs_on_device(const DeviceCore& core, PackOn asked) {
    if (asked == PackOn::device && core.deferred) {
        throw Error("weights cannot be packed on a device without a queue of ours", "Device::load");
    }
    const DeviceType type = core.capabilities.type;
    const bool gpu = type == DeviceType::discrete || type == DeviceType::integrated || type == DeviceType::virtual_gpu;
    return asked == PackOn::device || (asked == PackOn::by_device && gpu && !core.deferred);
}

/// Name, shape and how much the tensor will take, which has `bytes` now.
StoredTensor place_of(const HostTensor& t, std::uint64_t bytes, const LoadOptions& options, bool on_device) {
    StoredTensor out{t.name, t.dtype, t.shape, 0, 0, bytes, type_of(t, options)};
    if (out.type != WeightType::f32) {
        out.packed_on_device = on_device && t.type == WeightType::f32 && !same_format(t.dtype, out.type);
        out.dtype = DType::f32;
        out.bytes = static_cast<std::uint64_t>(t.shape[0]) *
                    packed_row_words(out.type, static_cast<std::uint64_t>(t.shape[1])) * sizeof(std::uint32_t);
    } else if (t.dtype == DType::f16 || t.dtype == DType::bf16) {
        out.dtype = DType::f32;
        out.bytes = bytes * 2;
    }
    return out;
}

constexpr std::uint64_t kPartBytes = 1u << 20;  // of a tensor that is converted on its way

/// Writes tensors into a store, part by part, converting them on their way.
class Loader {
public:
    Loader(const Device& device, const std::shared_ptr<DeviceCore>& core, const TensorStore& store, std::uint64_t bytes,
           const LoadOptions& options)
        : store_(store), uploader_(core, bytes), packer_(device, core, uploader_), all_(bytes), options_(options) {}

    void load(const HostTensor& t) {
        const StoredTensor& at = *store_.layout.find(t.name);
        if (t.type != WeightType::f32) {
            write(at, 0, t.data);
        } else if (at.packed_on_device) {
            pack_on_device(t, at);
        } else if (at.type != WeightType::f32) {
            load_packed(t, at);
        } else if (at.dtype != t.dtype) {
            load_widened(t, at);
        } else {
            write(at, 0, t.data);
        }
    }
    void finish() { uploader_.finish(); }

private:
    void write(const StoredTensor& at, std::uint64_t offset, std::span<const std::byte> bytes) {
        uploader_.write(store_.blocks[at.block], at.offset + offset, bytes);
        progress(bytes.size());
    }

    void progress(std::uint64_t bytes) {
        done_ += bytes;
        if (options_.progress) {
            options_.progress(done_, all_);
        }
    }

    void load_widened(const HostTensor& t, const StoredTensor& at) {
        const std::uint64_t count = at.bytes / sizeof(float);
        std::vector<float> part(std::min(count, kPartBytes / sizeof(float)));
        for (std::uint64_t first = 0; first < count; first += part.size()) {
            part.resize(std::min<std::uint64_t>(part.size(), count - first));
            widen(t, static_cast<std::int64_t>(first), part);
            write(at, first * sizeof(float), std::as_bytes(std::span(part)));
        }
    }

    void load_packed(const HostTensor& t, const StoredTensor& at) {
        const auto rows = static_cast<std::uint64_t>(t.shape[0]);
        const std::uint64_t pitch = packed_row_words(at.type, static_cast<std::uint64_t>(t.shape[1]));
        const std::uint64_t row_bytes = pitch * sizeof(std::uint32_t);
        const std::uint64_t step = std::clamp<std::uint64_t>(kPartBytes / row_bytes, 1, rows);
        std::vector<std::uint32_t> part(step * pitch);
        for (std::uint64_t first = 0; first < rows; first += step) {
            part.resize(std::min(step, rows - first) * pitch);
            pack_rows(t, at.type, static_cast<std::int64_t>(first), part);
            write(at, first * row_bytes, std::as_bytes(std::span(part)));
        }
    }

    void pack_on_device(const HostTensor& t, const StoredTensor& at) {
        const auto rows = static_cast<std::uint64_t>(t.shape[0]);
        const std::uint64_t row_bytes = at.bytes / rows;
        const std::uint64_t step = packer_.rows_at_once(t, at.type);
        for (std::uint64_t first = 0; first < rows; first += step) {
            const std::uint64_t count = std::min(step, rows - first);
            require_packable(t, at.type, static_cast<std::int64_t>(first), count);
            packer_.pack(t, at.type, static_cast<std::int64_t>(first), count, store_.blocks[at.block],
                         at.offset + first * row_bytes);
            progress(count * row_bytes);
        }
    }

    const TensorStore& store_;
    Uploader uploader_;
    Packer packer_;
    std::uint64_t done_ = 0;
    std::uint64_t all_;
    const LoadOptions& options_;
};

}  // namespace

Weights Device::load(std::span<const HostTensor> tensors, const Graph& graph, const LoadOptions& options) const {
    const std::vector<std::string> order = weight_order(graph);
    std::map<std::string_view, std::size_t> places;
    for (const std::string& name : order) {
        places.emplace(name, places.size());
    }
    const auto place_of = [&](const HostTensor& t) {
        const auto found = places.find(t.name);
        return found == places.end() ? places.size() : found->second;
    };
    std::vector<HostTensor> sorted(tensors.begin(), tensors.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](const HostTensor& a, const HostTensor& b) { return place_of(a) < place_of(b); });
    return load(sorted, options);
}

Weights Device::load(std::span<const HostTensor> tensors, const LoadOptions& options) const {
    std::vector<StoredTensor> stored;
    std::uint64_t bytes_in_all = 0;
    const bool on_device = packs_on_device(*core_, options.pack_on);
    for (const HostTensor& t : tensors) {
        const auto bytes = byte_size(t);
        if (!bytes || *bytes != t.data.size()) {
            throw Error("holds " + std::to_string(t.data.size()) + " bytes, its shape says " +
                            (bytes ? std::to_string(*bytes) : "what cannot be counted"),
                        "weight " + t.name);
        }
        stored.push_back(place_of(t, *bytes, options, on_device));
        bytes_in_all += stored.back().bytes;
    }
    const Capabilities& caps = core_->capabilities;
    auto store = std::make_shared<TensorStore>(
        core_, WeightLayout(std::move(stored), caps.storage_alignment, caps.max_allocation), "weights");
    Loader loader(*this, core_, *store, bytes_in_all, options);
    for (const HostTensor& t : tensors) {
        loader.load(t);
    }
    loader.finish();
    return Insides::make<Weights>(std::move(store));
}

}  // namespace vkf
