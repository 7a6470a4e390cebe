// SPDX-License-Identifier: Apache-2.0
// A program's memory and descriptor sets.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/numbers.h"
#include "runtime/device/deferred.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

namespace {

std::vector<std::byte> bytes_of_constant(const StorageInfo& constant) {
    std::vector<std::byte> bytes = constant.data->bytes();
    const std::uint64_t wanted =
        static_cast<std::uint64_t>(elements(constant.shape).constant()) * size_of(constant.dtype);
    if (bytes.size() != wanted) {
        throw Error("constant " + constant.name + " of " + std::to_string(wanted) + " bytes was made with " +
                        std::to_string(bytes.size()),
                    "Graph");
    }
    return bytes;
}

}  // namespace

void ProgramCore::place_storages(const BufferRange& host_scratch) {
    exchanged = {};
    arena = {};  // what an earlier attempt got before it failed must not stand in this one's way
    constants = {};
    io = {};
    upload_mirror = {};
    readback_mirror = {};
    const std::uint64_t alignment = device->capabilities.storage_alignment;
    places.assign(plan.storages.size(), {});
    io_offset.assign(plan.storages.size(), 0);
    std::uint64_t constant_bytes = 0;
    outputs_at = plan.memory.inputs;
    std::uint64_t input_bytes = 0;
    std::uint64_t output_bytes = outputs_at;
    std::vector<std::uint64_t> constant_offset(plan.storages.size(), 0);
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        const std::uint64_t bytes = align_up(plan.storage_bytes[s], alignment);
        const auto place = [&](std::uint64_t& offset, std::uint64_t& end) {
            offset = end;
            end += bytes;
        };
        switch (plan.storages[s].kind) {
            case StorageKind::constant: place(constant_offset[s], constant_bytes); break;
            case StorageKind::input: place(io_offset[s], input_bytes); break;
            case StorageKind::output: place(io_offset[s], output_bytes); break;
            default: break;
        }
    }
    Place scratch{host_scratch.buffer, host_scratch.offset};
    if (plan.memory.scratch != 0 && !scratch.buffer) {
        arena = Block(device, plan.memory.scratch, MemoryUse::device, options.name + " scratch");
        scratch.buffer = arena.buffer();
    }
    if (plan.memory.exchanged != 0) {
        exchanged = Block(device, plan.memory.exchanged, MemoryUse::shared, options.name + " exchanged by ranks");
    }
    if (constant_bytes != 0) {
        constants = Block(device, constant_bytes, MemoryUse::device, options.name + " constants");
        Uploader uploader(device, constant_bytes);
        for (StorageId s = 0; s < plan.storages.size(); ++s) {
            if (plan.storages[s].kind == StorageKind::constant) {
                uploader.write(constants, constant_offset[s], bytes_of_constant(plan.storages[s]));
            }
        }
        uploader.finish();
    }
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        const StorageInfo& info = plan.storages[s];
        switch (info.kind) {
            case StorageKind::constant: places[s] = {constants.buffer(), constant_offset[s]}; break;
            case StorageKind::intermediate:
                if (plan.exchange_offset[s] != Plan::kNotInArena) {
                    places[s] = {exchanged.buffer(), plan.exchange_offset[s]};
                } else if (plan.arena_offset[s] != Plan::kNotInArena) {
                    places[s] = {scratch.buffer, scratch.offset + plan.arena_offset[s]};
                }
                break;
            case StorageKind::weight: {
                const StorageInfo& first = info.parts.empty() ? info : plan.storages[info.parts.front()];
                const StoredTensor& t = *weights.find(first.name);
                places[s] = {Insides::store(weights)->blocks[t.block].buffer(), t.offset};
                break;
            }
            case StorageKind::state: {
                const StoredTensor& t = *state.find(info.name);
                places[s] = {Insides::store(state)->blocks[t.block].buffer(), t.offset};
                break;
            }
            case StorageKind::input:
            case StorageKind::output: break;
        }
    }
}

void ProgramCore::make_sets() {
    const DeviceTable& vk = device->api;
    const std::uint32_t slots = std::max(1u, options.slots);
    touches_external.assign(plan.dispatches.size(), false);
    std::uint32_t set_count = 0;
    std::map<ImageAccess, std::uint32_t> descriptors;
    const auto is_collective = [&](std::size_t d) {
        return plan.dispatches[d].dispatch.collective != Collective::none;
    };
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        if (is_collective(d)) {
            continue;
        }
        for (const Window& w : plan.dispatches[d].windows) {
            touches_external[d] = touches_external[d] || is_external(plan.storages[w.storage].kind);
        }
        const std::uint32_t copies = touches_external[d] ? slots : 1;
        set_count += copies;
        for (const Window& w : plan.dispatches[d].windows) {
            descriptors[plan.storages[w.storage].image] += copies;
        }
    }
    sets.assign(slots, std::vector<VkDescriptorSet>(plan.dispatches.size(), VK_NULL_HANDLE));
    if (set_count == 0) {
        return;
    }
    std::vector<VkDescriptorPoolSize> pool_sizes;
    for (const auto& [image, count] : descriptors) {
        pool_sizes.push_back({descriptor_type(image), count});
    }
    const VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr,          0, set_count,
                                          static_cast<std::uint32_t>(pool_sizes.size()), pool_sizes.data()};
    // An earlier attempt that failed may have left this pool.
    vk.vkDestroyDescriptorPool(device->handle, pool, nullptr);
    pool = VK_NULL_HANDLE;
    device->check_result(vk.vkCreateDescriptorPool(device->handle, &info, nullptr, &pool), "vkCreateDescriptorPool");
    const auto make = [&](std::size_t d) {
        const std::vector<Window>& windows = plan.dispatches[d].windows;
        const VkDescriptorSetLayout layout = device->pipelines->set_layout(static_cast<std::uint32_t>(windows.size()),
                                                                           plan.storages[windows[0].storage].image);
        const VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool, 1,
                                                   &layout};
        VkDescriptorSet set = VK_NULL_HANDLE;
        device->check_result(vk.vkAllocateDescriptorSets(device->handle, &allocate, &set), "vkAllocateDescriptorSets");
        return set;
    };
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        if (is_collective(d)) {
            continue;
        }
        if (touches_external[d]) {
            for (std::uint32_t slot = 0; slot < slots; ++slot) {
                sets[slot][d] = make(d);
            }
        } else {
            const VkDescriptorSet set = make(d);
            write_set(set, plan.dispatches[d], {});
            for (std::uint32_t slot = 0; slot < slots; ++slot) {
                sets[slot][d] = set;
            }
        }
    }
}

void ProgramCore::write_set(VkDescriptorSet set, const PlannedDispatch& dispatch,
                            const std::vector<Place>& external_places) noexcept {
    std::array<VkDescriptorBufferInfo, kMaxOperands> buffers;
    std::array<VkDescriptorImageInfo, kMaxOperands> images;
    std::array<VkWriteDescriptorSet, kMaxOperands> writes;
    const std::size_t count = dispatch.windows.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Window& w = dispatch.windows[i];
        const Place& at = is_external(plan.storages[w.storage].kind) ? external_places[w.storage] : places[w.storage];
        buffers[i] = {at.buffer, at.offset + w.base, w.bytes};
        if (at.limit != 0) {  // what lies behind is not touched at the sizes of this run
            const std::uint64_t base = w.base < at.limit ? w.base : 0;
            buffers[i] = {at.buffer, base, std::min(w.bytes, at.limit - base)};
        }
        images[i] = {VK_NULL_HANDLE, at.view, at.layout};
        writes[i] = {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                     nullptr,
                     set,
                     static_cast<std::uint32_t>(i),
                     0,
                     1,
                     descriptor_type(plan.storages[w.storage].image),
                     &images[i],
                     &buffers[i],
                     nullptr};
    }
    device->api.vkUpdateDescriptorSets(device->handle, static_cast<std::uint32_t>(count), writes.data(), 0, nullptr);
}

void ProgramCore::bind(std::uint32_t slot, const std::vector<Place>& external_places) noexcept {
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        if (touches_external[d]) {
            write_set(sets[slot][d], plan.dispatches[d], external_places);
        }
    }
}

void ProgramCore::allocate(const BufferRange& host_scratch) {
    if (allocated) {
        if (host_scratch.buffer) {
            throw Error("its memory is there already: scratch of the host's must come before", options.name);
        }
        return;
    }
    BufferRange told = host_scratch;
    told.name = "scratch";
    if (Status wrong = check_range(told); !wrong) {
        throw Error(wrong.message.data());
    }
    const std::uint64_t alignment = device->capabilities.storage_alignment;
    if (host_scratch.buffer && (host_scratch.bytes < plan.memory.scratch || host_scratch.offset % alignment != 0)) {
        throw Error("scratch needs " + std::to_string(plan.memory.scratch) + " bytes at a multiple of " +
                        std::to_string(alignment) + "; " + std::to_string(host_scratch.bytes) + " at " +
                        std::to_string(host_scratch.offset) + " were given",
                    options.name);
    }
    if (!plan.weights.empty() && !Insides::store(weights)) {
        throw Error("has no weights yet; it names " + std::to_string(plan.weights.size()) + ", " +
                        plan.weights.front().name + " among them: set_weights() must come before",
                    options.name);
    }
    device->check_alive();
    if (!state && plan.memory.state != 0) {
        state = Insides::make<State>(make_state_store(device, plan.storages));
    }
    place_storages(host_scratch);
    make_sets();
    record_scratch.assign(sets.size(), {sizes, std::vector<Place>(plan.storages.size()), {}, {}, {}, false, false});
    uploads_before = device->deferred ? device->deferred->noted() : 0;
    allocated = true;
}

void ProgramCore::allocate_io() {
    allocate();
    const std::uint64_t inputs_and_outputs = plan.memory.inputs + plan.memory.outputs;
    if (io || inputs_and_outputs == 0) {
        return;
    }
    // where there is one memory for both, the host reads through its cache
    const MemoryUse use = device->capabilities.unified_memory ? MemoryUse::shared : MemoryUse::device;
    Block both(device, inputs_and_outputs, use, options.name + " inputs and outputs");
    if (!both.mapped()) {
        if (plan.memory.inputs != 0) {
            upload_mirror = Block(device, plan.memory.inputs, MemoryUse::upload, options.name + " upload");
        }
        if (plan.memory.outputs != 0) {
            readback_mirror = Block(device, plan.memory.outputs, MemoryUse::readback, options.name + " readback");
        }
    }
    io = std::move(both);  // last: where a mirror could not be had, the next call tries again
}

ProgramCore::~ProgramCore() {
    if (runs && runs->pending()) {
        try {
            runs->wait();
        } catch (const std::exception&) {  // lost: nothing is under way any more; or given up
        }
    }
    if (device->given_up) {
        return;
    }
    const DeviceTable& vk = device->api;
    vk.vkDestroyDescriptorPool(device->handle, pool, nullptr);
    vk.vkDestroyQueryPool(device->handle, queries, nullptr);
    vk.vkDestroyCommandPool(device->handle, command_pool, nullptr);
}

}  // namespace vkf
