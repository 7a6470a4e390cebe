// SPDX-License-Identifier: Apache-2.0
// Recording into a host's command buffer, whole and in segments. Nothing here allocates or throws.
#include "runtime/device/barrier.h"
#include "runtime/device/failure.h"
#include "runtime/device/program.h"
#include "runtime/device/program_core.h"

namespace vkf {

namespace {

/// One half of moving a range between queue families.
void transfer(const DeviceTable& vk, VkCommandBuffer commands, const Place& place, std::uint32_t from_family,
              std::uint32_t to_family, bool release) noexcept {
    const VkBufferMemoryBarrier range{VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
                                      nullptr,
                                      release ? kShaderAccess : VkAccessFlags{0},
                                      release ? VkAccessFlags{0} : kShaderAccess,
                                      from_family,
                                      to_family,
                                      place.buffer,
                                      place.offset,
                                      place.bytes};
    // the acquire begins at the stage at which the host's semaphore was waited for
    const VkPipelineStageFlags to_stage = release ? VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT : kCompute;
    vk.vkCmdPipelineBarrier(commands, kCompute, to_stage, 0, 0, nullptr, 1, &range, 0, nullptr);
}

Status no_commands(const ProgramCore& core) noexcept {
    return failure(-1, "%s: no command buffer was given", core.options.name.c_str());
}

}  // namespace

void ProgramCore::open(VkCommandBuffer commands, const RecordScratch& scratch, bool first,
                       bool mirrors) const noexcept {
    // scratch and state, and what mirrors are copied to, may have been used by an earlier recording
    // on this queue
    barrier(device->api, commands, kCompute | kTransfer, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
            mirrors ? kCompute | kTransfer : kCompute, mirrors ? kShaderAccess | kTransferAccess : kShaderAccess);
    for (std::size_t i = 0; first && i < externals.size(); ++i) {
        const Place& place = scratch.places[externals[i]];
        if (place.acquire_from != kSameQueueFamily && place.acquire_from != device->queue_family) {
            transfer(device->api, commands, place, place.acquire_from, device->queue_family, false);
        }
    }
}

void ProgramCore::close(VkCommandBuffer commands, const RecordScratch& scratch) const noexcept {
    for (const StorageId id : externals) {
        const Place& place = scratch.places[id];
        if (place.release_to != kSameQueueFamily && place.release_to != device->queue_family) {
            transfer(device->api, commands, place, device->queue_family, place.release_to, true);
        }
    }
}

Status Program::record(VkCommandBuffer commands, const Recording& recording) noexcept {
    if (!core_) {
        return failure(-1, "%s", "a program was used that had been moved from");
    }
    ProgramCore& core = *core_;
    if (!commands) {
        return no_commands(core);
    }
    if (Status wrong = core.accept(recording); !wrong) {
        return wrong;
    }
    RecordScratch& scratch = core.record_scratch[recording.slot];
    Sink sink;
    sink.commands = commands;
    sink.sets = &core.record_sets;
    Position at;
    Cost spent;
    core.open(commands, scratch, true);
    const Status status = core.record(sink, recording.slot, scratch.sizes, at, spent);
    core.close(commands, scratch);
    scratch.in_use = core.checked() && bool(status);
    return status;
}

Status Program::begin(const Recording& recording) noexcept {
    if (!core_) {
        return failure(-1, "%s", "a program was used that had been moved from");
    }
    if (Status wrong = core_->accept(recording); !wrong) {
        return wrong;
    }
    RecordScratch& scratch = core_->record_scratch[recording.slot];
    scratch.at = {};
    scratch.spent = {};
    scratch.total = core_->cost(scratch.sizes);
    scratch.bound = true;
    core_->segmented = recording.slot;
    return {};
}

Status Program::record_segment(VkCommandBuffer commands, double budget, Segment& segment, std::uint32_t slot) noexcept {
    if (!core_) {
        return failure(-1, "%s", "a program was used that had been moved from");
    }
    ProgramCore& core = *core_;
    if (!commands) {
        return no_commands(core);
    }
    if (Status lost = core.device->alive(); !lost) {
        return lost;
    }
    if (Status wrong = core.check_slot(slot); !wrong) {
        return wrong;
    }
    if (!core.record_scratch[slot].bound) {
        return failure(-1, "%s: slot %u has nothing left to record; begin() must come first", core.options.name.c_str(),
                       slot);
    }
    if (!(budget > 0)) {
        return failure(-1, "%s: a segment's budget of %g is not above 0", core.options.name.c_str(), budget);
    }
    RecordScratch& scratch = core.record_scratch[slot];
    Sink sink;
    sink.commands = commands;
    sink.sets = &core.record_sets;
    sink.budget = budget;
    sink.pause = true;
    segment = {};
    core.open(commands, scratch, scratch.at.entry == 0 && scratch.at.group == 0);
    if (Status wrong = core.record(sink, slot, scratch.sizes, scratch.at, segment.cost); !wrong) {
        scratch.bound = false;
        core.segmented = ProgramCore::kNoSlot;
        return wrong;
    }
    scratch.in_use = core.checked();
    scratch.spent.flops += segment.cost.flops;
    scratch.spent.bytes += segment.cost.bytes;
    segment.last = scratch.at.entry == core.plan.work.size();
    segment.done = segment.last ? 1.0 : scratch.spent.total() / scratch.total.total();
    if (segment.last) {
        core.close(commands, scratch);
        scratch.bound = false;
        core.segmented = ProgramCore::kNoSlot;
    }
    return {};
}

void Program::finished(std::uint32_t slot) noexcept {
    if (core_ && slot < core_->record_scratch.size()) {
        core_->record_scratch[slot].in_use = false;
        core_->record_scratch[slot].bound = false;
        std::uint32_t left = slot;
        core_->segmented.compare_exchange_strong(left, ProgramCore::kNoSlot);
    }
}

Cost Program::cost(std::span<const SizeSetting> sizes) const {
    std::vector<std::int64_t> values = core_->sizes;
    for (Status wrong : {core_->settle(sizes, values), core_->check_sizes(values)}) {
        if (!wrong) {
            core_->refuse(wrong);
        }
    }
    return core_->cost(values);
}

}  // namespace vkf
