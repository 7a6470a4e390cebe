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
    return misuse("%s: no command buffer was given", core.options.name.c_str());
}

}  // namespace

void ProgramCore::open(VkCommandBuffer commands, const RecordingSlot& used, bool first, bool mirrors) const noexcept {
    // scratch and state, and what mirrors are copied to, may have been used by an earlier recording
    // on this queue
    barrier(device->api, commands, kCompute | kTransfer, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
            mirrors ? kCompute | kTransfer : kCompute, mirrors ? kShaderAccess | kTransferAccess : kShaderAccess);
    for (std::size_t i = 0; first && i < externals.size(); ++i) {
        const Place& place = used.places[externals[i]];
        if (place.acquire_from != kSameQueueFamily && place.acquire_from != device->queue_family) {
            transfer(device->api, commands, place, place.acquire_from, device->queue_family, false);
        }
    }
}

void ProgramCore::close(VkCommandBuffer commands, const RecordingSlot& used) const noexcept {
    for (const StorageId id : externals) {
        const Place& place = used.places[id];
        if (place.release_to != kSameQueueFamily && place.release_to != device->queue_family) {
            transfer(device->api, commands, place, device->queue_family, place.release_to, true);
        }
    }
}

Status Program::record(VkCommandBuffer commands, const Recording& recording) noexcept {
    if (!core_) {
        return misuse("%s", "a program was used that had been moved from");
    }
    ProgramCore& core = *core_;
    if (!commands) {
        return no_commands(core);
    }
    if (Status wrong = core.accept(recording); !wrong) {
        return wrong;
    }
    RecordingSlot& used = core.slots[recording.slot];
    Sink sink;
    sink.commands = commands;
    sink.sets = &core.record_sets;
    Position at;
    Cost spent;
    core.open(commands, used, true);
    const Status status = core.record(sink, recording.slot, used.sizes, at, spent);
    core.close(commands, used);
    used.in_use = core.checked() && bool(status);
    return status;
}

Status Program::begin(const Recording& recording) noexcept {
    if (!core_) {
        return misuse("%s", "a program was used that had been moved from");
    }
    if (Status wrong = core_->accept(recording); !wrong) {
        return wrong;
    }
    RecordingSlot& used = core_->slots[recording.slot];
    used.at = {};
    used.spent = {};
    used.total = core_->cost(used.sizes);
    used.segments_left = true;
    core_->segmented = recording.slot;
    return {};
}

Status Program::record_segment(VkCommandBuffer commands, double budget, Segment& segment, std::uint32_t slot) noexcept {
    if (!core_) {
        return misuse("%s", "a program was used that had been moved from");
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
    if (!core.slots[slot].segments_left) {
        return misuse("%s: slot %u has nothing left to record; begin() must come first", core.options.name.c_str(),
                      slot);
    }
    if (!(budget > 0)) {
        return misuse("%s: a segment's budget of %g is not above 0", core.options.name.c_str(), budget);
    }
    RecordingSlot& used = core.slots[slot];
    Sink sink;
    sink.commands = commands;
    sink.sets = &core.record_sets;
    sink.budget = budget;
    sink.pause = true;
    segment = {};
    core.open(commands, used, used.at.entry == 0 && used.at.group == 0);
    if (Status wrong = core.record(sink, slot, used.sizes, used.at, segment.cost); !wrong) {
        used.segments_left = false;
        core.segmented = ProgramCore::kNoSlot;
        return wrong;
    }
    used.in_use = core.checked();
    used.spent.flops += segment.cost.flops;
    used.spent.bytes += segment.cost.bytes;
    segment.last = used.at.entry == core.plan.work.size();
    segment.done = segment.last ? 1.0 : used.spent.total() / used.total.total();
    if (segment.last) {
        core.close(commands, used);
        used.segments_left = false;
        core.segmented = ProgramCore::kNoSlot;
    }
    return {};
}

void Program::finished(std::uint32_t slot) noexcept {
    if (core_ && slot < core_->slots.size()) {
        core_->slots[slot].in_use = false;
        core_->slots[slot].segments_left = false;
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
