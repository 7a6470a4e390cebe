// SPDX-License-Identifier: Apache-2.0
// A program's memory.
#include <algorithm>
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

void ProgramCore::allocate(const BufferRange& host_scratch) {
    device->check_alive();
    if (allocated) {
        if (host_scratch.buffer) {
            throw Error("its memory is there already: scratch of the host's must come before", options.name);
        }
        return;
    }
    BufferRange told = host_scratch;
    told.name = "scratch";
    if (Status wrong = check_range(told); !wrong) {
        refuse(wrong);
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
    if (!state && plan.memory.state != 0) {
        state = Insides::make<State>(make_state_store(device, plan.storages));
    }
    place_storages(host_scratch);
    slots.assign(options.slots, {sizes, std::vector<Place>(plan.storages.size()), {}, {}, {}, false, false});
    uploads_before = device->deferred ? device->deferred->noted() : 0;
    scratch_of_host = told;
    scratch_of_host.bytes = plan.memory.scratch;  // what is used of it
    allocated = true;
}

void ProgramCore::allocate_for_host(const BufferRange& host_scratch) {
    const bool there = allocated;
    allocate(host_scratch);
    if (record_sets) {
        return;
    }
    try {
        record_sets = DescriptorSets(device, plan, pipelines_for(*device, plan, {true, has_host_scratch()}), places,
                                     options.slots);
    } catch (...) {
        allocated = there;  // the next attempt may come with scratch again
        throw;
    }
}

void ProgramCore::allocate_io() {
    allocate();
    if (!run_sets) {
        if (has_host_scratch()) {
            pipelines = pipelines_for(*device, plan, {!device->owned, true});
        }
        run_sets = DescriptorSets(device, plan, pipelines, places, 1);
    }
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
    for (StorageId id = 0; id < bound_tensors.size(); ++id) {
        put_bound(id, {});
    }
    if (device->given_up) {
        return;
    }
    const DeviceTable& vk = device->api;
    vk.vkDestroyQueryPool(device->handle, queries, nullptr);
    vk.vkDestroyCommandPool(device->handle, command_pool, nullptr);
}

}  // namespace vkf
