// SPDX-License-Identifier: Apache-2.0
// What a host gives with a recording, looked at before anything is recorded. Nothing here allocates
// or throws.
#include <algorithm>

#include "runtime/device/deferred.h"
#include "runtime/device/failure.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

Status ProgramCore::accept_buffer(StorageId id, const Recording& recording, Place& place) const noexcept {
    const StorageInfo& info = plan.storages[id];
    const auto at = std::find_if(recording.buffers.begin(), recording.buffers.end(),
                                 [&](const BufferRange& b) { return b.name == info.name; });
    if (at == recording.buffers.end()) {
        return misuse("%s: %s is not bound", options.name.c_str(), info.name.c_str());
    }
    const std::uint64_t alignment = device->capabilities.storage_alignment;
    if (at->buffer == VkBuffer(VK_NULL_HANDLE) || at->offset % alignment != 0 || at->bytes < plan.storage_bytes[id]) {
        return misuse("%s: %s needs %llu bytes at a multiple of %llu; %llu at %llu were given%s", options.name.c_str(),
                      info.name.c_str(), ull{plan.storage_bytes[id]}, ull{alignment}, ull{at->bytes}, ull{at->offset},
                      at->buffer ? "" : ", without a buffer");
    }
    place = {at->buffer,       at->offset,    at->bytes, VK_NULL_HANDLE, VK_IMAGE_LAYOUT_UNDEFINED,
             at->acquire_from, at->release_to};
    return {};
}

Status ProgramCore::accept_image(StorageId id, const Recording& recording, std::span<const std::int64_t> values,
                                 Place& place) const noexcept {
    const StorageInfo& info = plan.storages[id];
    const auto at = std::find_if(recording.images.begin(), recording.images.end(),
                                 [&](const ImageView& i) { return i.name == info.name; });
    if (at == recording.images.end() || at->view == VkImageView(VK_NULL_HANDLE)) {
        return misuse("%s: image %s is not bound", options.name.c_str(), info.name.c_str());
    }
    const std::int64_t height = info.shape[0].eval(values);
    const std::int64_t width = info.shape[1].eval(values);
    if (at->width < width || at->height < height) {
        return misuse("%s: image %s needs %lld x %lld texels; %u x %u were given", options.name.c_str(),
                      info.name.c_str(), static_cast<long long>(width), static_cast<long long>(height), at->width,
                      at->height);
    }
    const auto layout = static_cast<VkImageLayout>(at->layout);
    const bool read_only = layout == VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL && info.image == ImageAccess::sampled;
    if (layout != VK_IMAGE_LAYOUT_GENERAL && !read_only) {
        return misuse("%s: image %s is in layout %u, which %s cannot be", options.name.c_str(), info.name.c_str(),
                      at->layout, info.image == ImageAccess::sampled ? "a sampled image" : "a storage image");
    }
    place.view = at->view;
    place.layout = layout;
    return {};
}

Status ProgramCore::check_range(const BufferRange& range) const noexcept {
    const char* name = options.name.c_str();
    const int length = static_cast<int>(range.name.size());
    if (range.buffer_bytes != 0 &&
        (range.offset > range.buffer_bytes || range.bytes > range.buffer_bytes - range.offset)) {
        return misuse("%s: %.*s takes %llu bytes at %llu of a buffer of %llu", name, length, range.name.data(),
                      ull{range.bytes}, ull{range.offset}, ull{range.buffer_bytes});
    }
    if (range.buffer_usage != 0 && (range.buffer_usage & VK_BUFFER_USAGE_STORAGE_BUFFER_BIT) == 0) {
        return misuse("%s: %.*s is in a buffer without VK_BUFFER_USAGE_STORAGE_BUFFER_BIT (usage 0x%x)", name, length,
                      range.name.data(), range.buffer_usage);
    }
    if (range.buffer_device && range.buffer_device != device->handle) {
        return misuse("%s: %.*s is in a buffer of another device", name, length, range.name.data());
    }
    return {};
}

const StorageInfo* ProgramCore::external(std::string_view name, bool image) const noexcept {
    const auto at = std::find_if(externals.begin(), externals.end(), [&](StorageId id) {
        const StorageInfo& s = plan.storages[id];
        return (s.image != ImageAccess::none) == image && s.name == name;
    });
    return at == externals.end() ? nullptr : &plan.storages[*at];
}

Status ProgramCore::check_statements(const Recording& recording) const noexcept {
    const char* name = options.name.c_str();
    const std::uint32_t slot = recording.slot;
    if (slots[slot].in_use) {
        return misuse("%s: slot %u was recorded before, and finished(%u) has not come since", name, slot, slot);
    }
    if (const std::uint32_t other = segmented; other != kNoSlot && other != slot) {
        return misuse("%s: slot %u while segments of slot %u are left to record", name, slot, other);
    }
    const auto clash = [&](std::string_view a, std::string_view b, const char* what) {
        return misuse("%s: output %.*s %s %.*s", name, static_cast<int>(a.size()), a.data(), what,
                      static_cast<int>(b.size()), b.data());
    };
    const auto known = [&](std::string_view n, bool image, std::size_t times) -> Status {
        if (times > 1 || !external(n, image)) {
            return misuse("%s: %.*s is %s", name, static_cast<int>(n.size()), n.data(),
                          times > 1 ? "bound twice" : "no input or output of it");
        }
        return {};
    };
    for (const SizeSetting& s : recording.sizes) {
        const auto same = [&](const SizeSetting& o) { return o.name == s.name; };
        if (std::count_if(recording.sizes.begin(), recording.sizes.end(), same) > 1) {
            return misuse("%s: size %.*s is given twice", name, static_cast<int>(s.name.size()), s.name.data());
        }
    }
    const auto overlap = [](const BufferRange& a, const BufferRange& b) {
        return a.buffer == b.buffer &&
               (a.offset <= b.offset ? b.offset - a.offset < a.bytes : a.offset - b.offset < b.bytes);
    };
    for (const BufferRange& r : recording.buffers) {
        const auto same = [&](const BufferRange& o) { return o.name == r.name; };
        const auto times = std::count_if(recording.buffers.begin(), recording.buffers.end(), same);
        for (const Status& wrong : {known(r.name, false, static_cast<std::size_t>(times)), check_range(r)}) {
            if (!wrong) {
                return wrong;
            }
        }
        if (has_host_scratch() && overlap(r, scratch_of_host)) {
            return misuse("%s: %.*s overlaps the scratch that allocate() was given", name,
                          static_cast<int>(r.name.size()), r.name.data());
        }
        for (const BufferRange& o : recording.buffers) {
            if (external(r.name, false)->kind == StorageKind::output && &o != &r && overlap(r, o)) {
                return clash(r.name, o.name, "overlaps, in one buffer,");
            }
        }
    }
    for (const ImageView& i : recording.images) {
        const auto same = [&](const ImageView& o) { return o.name == i.name; };
        const auto times = std::count_if(recording.images.begin(), recording.images.end(), same);
        if (Status wrong = known(i.name, true, static_cast<std::size_t>(times)); !wrong) {
            return wrong;
        }
        for (const ImageView& o : recording.images) {
            if (external(i.name, true)->kind == StorageKind::output && &o != &i && o.view == i.view) {
                return clash(i.name, o.name, "is the same image view as");
            }
        }
    }
    return {};
}

Status ProgramCore::check_slot(std::uint32_t slot) const noexcept {
    if (!record_sets) {
        return misuse("%s: allocate() must come before record()", options.name.c_str());
    }
    if (slot >= slots.size()) {
        return misuse("%s: slot %u of %llu", options.name.c_str(), slot, ull{slots.size()});
    }
    return {};
}

Status ProgramCore::accept(const Recording& recording) noexcept {
    const char* name = options.name.c_str();
    if (Status lost = device->alive(); !lost) {
        return lost;
    }
    if (Status wrong = check_slot(recording.slot); !wrong) {
        return wrong;
    }
    const std::uint64_t uploads = std::max(uploads_before, state ? Insides::store(state)->uploads_before.load() : 0);
    if (device->deferred && device->deferred->done() < uploads) {
        return misuse("%s: weights, constants or state wait for Device::record_upload()", name);
    }
    if (recording.slot == 0 && runs && runs->busy()) {
        if (Status lost = device->alive(); !lost) {
            return lost;
        }
        return misuse("%s: slot 0 is in use by a run that was submitted and has not finished", name);
    }
    if (checked()) {
        if (Status wrong = check_statements(recording); !wrong) {
            return wrong;
        }
    }
    RecordingSlot& used = slots[recording.slot];
    if (used.segments_left) {  // segments that were left are given up, whatever comes of this
        used.segments_left = false;
        segmented = kNoSlot;
    }
    for (Status wrong : {settle(recording.sizes, used.sizes), check_sizes(used.sizes)}) {
        if (!wrong) {
            return wrong;
        }
    }
    for (const StorageId id : externals) {
        const Status wrong = plan.storages[id].image == ImageAccess::none
                                 ? accept_buffer(id, recording, used.places[id])
                                 : accept_image(id, recording, used.sizes, used.places[id]);
        if (!wrong) {
            return wrong;
        }
    }
    // always: a buffer made anew may have the handle of one that is gone
    record_sets.bind(recording.slot, used.places);
    return {};
}

Status ProgramCore::settle(std::span<const SizeSetting> settings, std::span<std::int64_t> out) const noexcept {
    std::copy(sizes.begin(), sizes.end(), out.begin());
    for (const SizeSetting& s : settings) {
        const auto at = std::find_if(plan.symbols.begin(), plan.symbols.end(),
                                     [&](const SymbolInfo& info) { return info.name == s.name; });
        const int length = static_cast<int>(s.name.size());
        if (at == plan.symbols.end()) {
            return misuse("%s: the program has no size \"%.*s\"", options.name.c_str(), length, s.name.data());
        }
        if (s.value < 0 || s.value > at->max) {
            return misuse("%s: size %.*s = %lld is outside 0..%lld", options.name.c_str(), length, s.name.data(),
                          static_cast<long long>(s.value), static_cast<long long>(at->max));
        }
        out[static_cast<std::size_t>(at - plan.symbols.begin())] = s.value;
    }
    return {};
}

}  // namespace vkf
