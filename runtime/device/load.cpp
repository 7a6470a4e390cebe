// SPDX-License-Identifier: Apache-2.0
// Device::load: how tensors get to where their layout has them.
#include <algorithm>
#include <set>

#include "runtime/base/text.h"
#include "runtime/compile/pack_lanes.h"
#include "runtime/compile/weight_order.h"
#include "runtime/device/deferred.h"
#include "runtime/device/device.h"
#include "runtime/device/insides.h"
#include "runtime/device/load_in_turn.h"
#include "runtime/device/packer.h"
#include "runtime/device/tensor_store.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

bool may_pack_on_device(const DeviceCore& core, PackOn asked) {
    if (asked == PackOn::device && core.deferred) {
        throw Error("weights cannot be packed on a device for which the host submits", "Device::load");
    }
    const DeviceType type = core.capabilities.type;
    const std::vector<LeftOut> without = core.left_out();  // a self-test may have found more
    const auto is_packer = [](const LeftOut& kernel) { return kernel.kernel == kPackedRows.name; };
    if (asked == PackOn::by_device && std::any_of(without.begin(), without.end(), is_packer)) {
        return false;
    }
    const bool gpu = type == DeviceType::discrete || type == DeviceType::integrated || type == DeviceType::virtual_gpu;
    return asked == PackOn::device || (asked == PackOn::by_device && gpu && !core.deferred);
}

constexpr std::uint64_t kPartBytes = 1u << 20;  // part of a tensor that is converted on its way

/// Writes tensors into a store, part by part, converting them on their way.
class Loader {
public:
    Loader(const Device& device, const std::shared_ptr<DeviceCore>& core, TensorStore& store, std::uint64_t bytes,
           const LoadProgress& progress, PackOn pack_on)
        : store_(store),
          uploader_(core, bytes),
          packer_(device, core, uploader_),
          all_(bytes),
          progress_(progress),
          on_device_(may_pack_on_device(*core, pack_on)),
          must_on_device_(pack_on == PackOn::device) {}

    void load(const HostTensor& t) {
        const StoredTensor& at = *store_.layout.find(t.name);
        if (t.type != WeightType::f32) {
            write(at, 0, t.data);
        } else if (at.type != WeightType::f32 && !same_format(t.dtype, at.type) && packs_on_device(t, at)) {
            pack_on_device(t, at);
            store_.packed_on_device += at.bytes;
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
    /// Where the driver refuses the kernel, the host packs this and all that follow, unless it was
    /// asked not to.
    bool packs_on_device(const HostTensor& t, const StoredTensor& at) {
        try {
            if (on_device_) {
                packer_.compile(t, at.type);
            }
        } catch (const RefusedKernel&) {
            if (must_on_device_) {
                throw;
            }
            on_device_ = false;
        }
        return on_device_;
    }

    void write(const StoredTensor& at, std::uint64_t offset, std::span<const std::byte> bytes) {
        uploader_.write(store_.blocks[at.block], at.offset + offset, bytes);
        progress(bytes.size());
    }

    void progress(std::uint64_t bytes) {
        done_ += bytes;
        if (progress_) {
            progress_(done_, all_);
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

    TensorStore& store_;
    Uploader uploader_;
    Packer packer_;
    std::uint64_t done_ = 0;
    std::uint64_t all_;
    const LoadProgress& progress_;
    bool on_device_, must_on_device_;
};

void check_bytes(const HostTensor& t) {
    const auto bytes = byte_size(t);
    if (!bytes || *bytes != t.data.size()) {
        throw Error("holds " + std::to_string(t.data.size()) + " bytes, its shape says " +
                        (bytes ? std::to_string(*bytes) : "what cannot be counted"),
                    "weight " + t.name);
    }
}

void check_bytes(std::span<const HostTensor> tensors) {
    for (const HostTensor& t : tensors) {
        check_bytes(t);
    }
}

std::string text_of(const StoredTensor& t) {
    return shape_text(t.shape) + " " + std::string(t.type == WeightType::f32 ? name_of(t.dtype) : name_of(t.type));
}

/// Throws where a tensor has no place, or a place no tensor.
class Places {
public:
    Places(const WeightLayout& layout, const Capabilities& device) : layout_(layout), device_(device) {}

    void check(const HostTensor& t) {
        const StoredTensor* at = layout_.find(t.name);
        if (at == nullptr) {
            throw Error("has no place in the layout", "weight " + t.name);
        }
        StoredTensor wanted = stored_as(t, at->type);
        wanted.block = at->block;
        wanted.offset = at->offset;
        if (wanted != *at) {
            throw Error("becomes " + text_of(wanted) + ", the layout has it as " + text_of(*at), "weight " + t.name);
        }
        if (at->offset % device_.storage_alignment != 0) {
            throw Error("lies at byte " + std::to_string(at->offset) +
                            " in the layout; this device aligns tensors to " +
                            std::to_string(device_.storage_alignment),
                        "weight " + t.name);
        }
        if (!given_.insert(at->name).second) {
            throw Error("is given twice", "weight " + t.name);
        }
    }

    void check_all_given() const {
        for (const StoredTensor& t : layout_.tensors()) {
            if (!given_.contains(t.name)) {
                throw Error("is in the layout, but is not given", "weight " + t.name);
            }
        }
    }

private:
    const WeightLayout& layout_;
    const Capabilities& device_;
    std::set<std::string_view> given_;  ///< names of the layout
};

/// Calls `load_all` with the loader of a store of this layout.
template <class LoadAll>
Weights load_into(const Device& device, const std::shared_ptr<DeviceCore>& core, WeightLayout layout,
                  const LoadProgress& progress, PackOn pack_on, LoadAll load_all) {
    std::uint64_t bytes = 0;
    for (const StoredTensor& t : layout.tensors()) {
        bytes += t.bytes;
    }
    auto store = std::make_shared<TensorStore>(core, std::move(layout), "weights");
    Loader loader(device, core, *store, bytes, progress, pack_on);
    load_all(loader);
    loader.finish();
    return Insides::make<Weights>(std::move(store));
}

/// A function that loads tensors, all of which are in memory.
auto all_of(std::span<const HostTensor> tensors) {
    return [tensors](Loader& loader) {
        for (const HostTensor& t : tensors) {
            loader.load(t);
        }
    };
}

}  // namespace

Weights Device::load(const Graph& graph, std::span<const HostTensor> tensors, const LoadOptions& options) const {
    return load(in_weight_order(tensors, graph), options);
}

Weights Device::load(std::span<const HostTensor> tensors, const LoadOptions& options) const {
    check_bytes(tensors);
    return load_into(*this, core_, make_weight_layout(tensors, core_->capabilities, options), options.progress,
                     options.pack_on, all_of(tensors));
}

Weights Device::load(std::span<const HostTensor> tensors, const WeightLayout& layout, const LoadProgress& progress,
                     PackOn pack_on) const {
    check_bytes(tensors);
    Places places(layout, core_->capabilities);
    for (const HostTensor& t : tensors) {
        places.check(t);
    }
    places.check_all_given();
    return load_into(*this, core_, layout, progress, pack_on, all_of(tensors));
}

Weights load_in_turn(const Device& device, std::size_t count, const std::function<HostTensor(std::size_t)>& tensor,
                     const WeightLayout& layout, const LoadProgress& progress, PackOn pack_on) {
    const std::shared_ptr<DeviceCore>& core = Insides::shared_core(device);
    return load_into(device, core, layout, progress, pack_on, [&](Loader& loader) {
        Places places(layout, core->capabilities);
        for (std::size_t i = 0; i < count; ++i) {
            const HostTensor t = tensor(i);
            check_bytes(t);
            places.check(t);
            loader.load(t);
        }
        places.check_all_given();
    });
}

}  // namespace vkf
