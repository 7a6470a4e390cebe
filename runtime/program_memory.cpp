// SPDX-License-Identifier: Apache-2.0
// A program's memory and descriptor sets.
#include <algorithm>

#include "runtime/program_core.h"

namespace vkf {

namespace {

std::uint64_t align_up(std::uint64_t n, std::uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

bool is_external(StorageKind kind) { return kind == StorageKind::input || kind == StorageKind::output; }

}  // namespace

void ProgramCore::place_storages() {
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
    if (plan.memory.scratch != 0) {
        arena = Block(device, plan.memory.scratch, MemoryUse::device, options.name + " scratch");
    }
    if (constant_bytes != 0) {
        constants = Block(device, constant_bytes, MemoryUse::device, options.name + " constants");
        Uploader uploader(device, constant_bytes);
        for (StorageId s = 0; s < plan.storages.size(); ++s) {
            if (plan.storages[s].kind == StorageKind::constant) {
                uploader.write(constants, constant_offset[s], *plan.storages[s].data);
            }
        }
        uploader.finish();
    }
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        const StorageInfo& info = plan.storages[s];
        switch (info.kind) {
            case StorageKind::constant: places[s] = {constants.buffer(), constant_offset[s]}; break;
            case StorageKind::intermediate:
                if (plan.arena_offset[s] != Plan::kNotInArena) {
                    places[s] = {arena.buffer(), plan.arena_offset[s]};
                }
                break;
            case StorageKind::weight: {
                const StoredTensor& t = *weights.find(info.name);
                places[s] = {weights.store()->blocks[t.block].buffer(), t.offset};
                break;
            }
            case StorageKind::state: {
                const StoredTensor& t = *state.find(info.name);
                places[s] = {state.store()->blocks[t.block].buffer(), t.offset};
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
    external.assign(plan.dispatches.size(), false);
    std::uint32_t set_count = 0;
    std::uint32_t descriptors = 0;
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        for (const Window& w : plan.dispatches[d].windows) {
            external[d] = external[d] || is_external(plan.storages[w.storage].kind);
        }
        const std::uint32_t copies = external[d] ? slots : 1;
        set_count += copies;
        descriptors += copies * static_cast<std::uint32_t>(plan.dispatches[d].windows.size());
    }
    sets.assign(slots, std::vector<VkDescriptorSet>(plan.dispatches.size(), VK_NULL_HANDLE));
    if (set_count == 0) {
        return;
    }
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, descriptors};
    const VkDescriptorPoolCreateInfo info{
        VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, set_count, 1, &size};
    vk.vkDestroyDescriptorPool(device->handle, pool, nullptr);  // of an attempt that failed half-way
    pool = VK_NULL_HANDLE;
    device->check_result(vk.vkCreateDescriptorPool(device->handle, &info, nullptr, &pool), "vkCreateDescriptorPool");
    const auto make = [&](std::size_t d) {
        const VkDescriptorSetLayout layout =
            device->pipelines->set_layout(static_cast<std::uint32_t>(plan.dispatches[d].windows.size()));
        const VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool, 1,
                                                   &layout};
        VkDescriptorSet set = VK_NULL_HANDLE;
        device->check_result(vk.vkAllocateDescriptorSets(device->handle, &allocate, &set), "vkAllocateDescriptorSets");
        return set;
    };
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        if (external[d]) {
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
    std::array<VkWriteDescriptorSet, kMaxOperands> writes;
    const std::size_t count = dispatch.windows.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Window& w = dispatch.windows[i];
        const Place& at = is_external(plan.storages[w.storage].kind) ? external_places[w.storage] : places[w.storage];
        buffers[i] = {at.buffer, at.offset + w.base, w.bytes};
        writes[i] = {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                     nullptr,
                     set,
                     static_cast<std::uint32_t>(i),
                     0,
                     1,
                     VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                     nullptr,
                     &buffers[i],
                     nullptr};
    }
    device->api.vkUpdateDescriptorSets(device->handle, static_cast<std::uint32_t>(count), writes.data(), 0, nullptr);
}

void ProgramCore::bind(std::uint32_t slot, const std::vector<Place>& external_places) noexcept {
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        if (external[d]) {
            write_set(sets[slot][d], plan.dispatches[d], external_places);
        }
    }
}

void ProgramCore::allocate() {
    if (allocated) {
        return;
    }
    device->check_alive();
    if (!state && plan.memory.state != 0) {
        state = make_state_of(device, plan.storages);
    }
    place_storages();
    make_sets();
    record_scratch.assign(sets.size(), {sizes, std::vector<Place>(plan.storages.size())});
    allocated = true;
}

void ProgramCore::allocate_io() {
    allocate();
    const std::uint64_t inputs_and_outputs = plan.memory.inputs + plan.memory.outputs;
    if (io || inputs_and_outputs == 0) {
        return;
    }
    Block both(device, inputs_and_outputs, MemoryUse::device, options.name + " inputs and outputs");
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
    const DeviceTable& vk = device->api;
    vk.vkDestroyDescriptorPool(device->handle, pool, nullptr);
    vk.vkDestroyQueryPool(device->handle, queries, nullptr);
    vk.vkDestroyFence(device->handle, fence, nullptr);
    vk.vkDestroyCommandPool(device->handle, command_pool, nullptr);
}

}  // namespace vkf
