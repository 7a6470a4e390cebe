// SPDX-License-Identifier: Apache-2.0
// From a plan and sizes to Vulkan commands. Nothing here allocates or throws.
#include <algorithm>
#include <cstring>

#include "runtime/base/numbers.h"
#include "runtime/device/barrier.h"
#include "runtime/device/failure.h"
#include "runtime/device/program_core.h"

namespace vkf {

namespace {

void compute_barrier(const DeviceTable& vk, VkCommandBuffer commands) noexcept {
    barrier(vk, commands, kCompute, VK_ACCESS_SHADER_WRITE_BIT, kCompute, kShaderAccess);
}

/// A label around a dispatch, for debuggers.
class Label {
public:
    Label(const InstanceCore& instance, VkCommandBuffer commands, const char* text) noexcept
        : end_(instance.labels && instance.api.vkCmdBeginDebugUtilsLabelEXT ? instance.api.vkCmdEndDebugUtilsLabelEXT
                                                                            : nullptr),
          commands_(commands) {
        if (end_) {
            const VkDebugUtilsLabelEXT label{VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT, nullptr, text, {0, 0, 0, 0}};
            instance.api.vkCmdBeginDebugUtilsLabelEXT(commands, &label);
        }
    }
    ~Label() {
        if (end_) {
            end_(commands_);
        }
    }
    Label(const Label&) = delete;
    Label& operator=(const Label&) = delete;

private:
    PFN_vkCmdEndDebugUtilsLabelEXT end_;
    VkCommandBuffer commands_;
};

/// Groups from `first` on as one vkCmdDispatch, `most` of them or fewer.
struct Grid {
    std::uint64_t x, y, z, covered;

    Grid(const Capabilities& caps, std::uint64_t most) noexcept {
        x = std::min<std::uint64_t>(most, caps.max_groups[0]);
        y = std::min<std::uint64_t>(divide_up(most, x), caps.max_groups[1]);
        z = std::min<std::uint64_t>(divide_up(most, x * y), caps.max_groups[2]);
        covered = std::min(most, x * y * z);
    }
};

/// Records entries of a plan, one after the other, with the barriers between them.
class Recorder {
public:
    Recorder(ProgramCore& core, Sink& sink, std::uint32_t slot, std::span<const std::int64_t> values,
             Cost& spent) noexcept
        : core_(core), vk_(core.device->api), sink_(sink), slot_(slot), values_(values), spent_(spent) {}

    /// Records the groups from `group` on, which is moved behind what was recorded.
    Status dispatch(std::size_t d, std::uint64_t& group) noexcept {
        const PlannedDispatch& planned = core_.plan.dispatches[d];
        Command command;
        if (Status wrong = core_.prepare(d, values_, command); !wrong) {
            return wrong;
        }
        if (command.groups() != 0) {  // else what later entries need stays to be waited for
            enter(planned.step, kCompute, kShaderAccess);
        }
        timestamp(2 * d);
        const Cost whole{command.flops(), command.bytes()};
        std::uint64_t most = command.groups();  // groups in one vkCmdDispatch
        if (sink_.budget > 0 && whole.total() > sink_.budget) {
            most = std::max<std::uint64_t>(
                1, static_cast<std::uint64_t>(static_cast<double>(most) * (sink_.budget / whole.total())));
        }
        while (group < command.groups()) {
            const Grid grid(core_.device->capabilities, std::min(most, command.groups() - group));
            const double part = static_cast<double>(grid.covered) / static_cast<double>(command.groups());
            const double share = whole.total() * part;
            if (sink_.budget > 0 && in_submission_ > 0 && in_submission_ + share > sink_.budget) {
                if (sink_.pause) {
                    paused_ = true;
                    return {};
                }
                if (Status wrong = next_submission(); !wrong) {
                    return wrong;
                }
            }
            if (group > 0 && written_ != 0) {
                // parts write apart from each other but in one window, which synchronization
                // validation takes for one place
                compute_barrier(vk_, sink_.commands);
            }
            in_submission_ += share;
            spent_.flops += whole.flops * part;
            spent_.bytes += whole.bytes * part;
            launch(d, command, group, grid);
            group += grid.covered;
            written_ = kCompute;
            sink_.writes_state = sink_.writes_state || writes_state(planned);
        }
        if (timestamp(2 * d + 1)) {
            core_.times[d].flops = whole.flops;
            core_.times[d].bytes = whole.bytes;
            core_.times[d].kernel.assign(planned.dispatch.kernels[command.kernel()].shader->name);
        }
        return {};
    }

    /// Has what is recorded run, and begins a collective with what it writes. It goes on until
    /// `over_before`, an entry of the plan's work.
    Status collective(std::size_t d) noexcept {
        const PlannedDispatch& planned = core_.plan.dispatches[d];
        Command command;
        if (Status wrong = core_.prepare(d, values_, command); !wrong) {
            return wrong;
        }
        if (!sink_.begin_together) {
            return misuse("%s: %s is done by several ranks, which run() and submit() do, and a recording cannot",
                          core_.options.name.c_str(), core_.plan.nodes[planned.dispatch.node].label.c_str());
        }
        if (written_ == 0) {
            // The host reads what an earlier submission may have written, which a fence alone does
            // not make visible to it.
            written_ = kCompute;
        }
        enter(planned.step, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
        timestamp(2 * d);
        spent_.bytes += command.bytes();
        under_way_ = d;
        return go_on(sink_.begin_together(sink_.user, sink_.commands, d, command));
    }

    /// Ends the collective that is under way where the entry needs that.
    Status before(std::size_t entry) noexcept {
        return under_way_ != kNone && core_.plan.dispatches[under_way_].over_before <= entry ? end_collective()
                                                                                             : Status();
    }

    Status end_collective() noexcept {
        if (under_way_ == kNone) {
            return {};
        }
        if (Status wrong = go_on(sink_.end_together(sink_.user, sink_.commands, launched_)); !wrong) {
            return wrong;
        }
        timestamp(2 * under_way_ + 1);
        under_way_ = kNone;
        return {};
    }

    void copy(const PlannedCopy& planned) noexcept {
        const StorageId id = planned.storage;
        if (!sink_.mirrors || core_.bound_tensors[id]) {
            return;
        }
        const std::uint64_t at = core_.io_offset[id];
        VkBufferCopy region{at, at, core_.elements_of(id, values_) * size_of(core_.plan.storages[id].dtype)};
        VkBuffer from = core_.upload_mirror.buffer();
        VkBuffer to = core_.io.buffer();
        if (planned.direction == CopyDirection::to_host) {
            from = core_.io.buffer();
            to = core_.readback_mirror.buffer();
            region.dstOffset = at - core_.outputs_at;
        }
        if (region.size != 0 && (planned.direction == CopyDirection::to_host || core_.is_dirty(id))) {
            enter(planned.step, kTransfer, kTransferAccess);
            vk_.vkCmdCopyBuffer(sink_.commands, from, to, 1, &region);
            written_ = kTransfer;
        }
    }

    /// The budget is used up: the rest is of a later segment.
    bool paused() const noexcept { return paused_; }

private:
    bool writes_state(const PlannedDispatch& planned) const noexcept {
        const std::vector<Binding>& bindings = planned.dispatch.bindings;
        for (std::size_t b = 0; b < bindings.size(); ++b) {
            const StorageInfo& storage = core_.plan.storages[planned.windows[b].storage];
            if (bindings[b].access != Access::read && storage.kind == StorageKind::state) {
                return true;
            }
        }
        return false;
    }

    /// A barrier, where a new step begins: what the step before wrote is there for this one.
    void enter(std::uint32_t step, VkPipelineStageFlags stage, VkAccessFlags access) noexcept {
        if (step != step_ && written_ != 0) {
            const bool copied = written_ == kTransfer;
            barrier(vk_, sink_.commands, written_, copied ? VK_ACCESS_TRANSFER_WRITE_BIT : VK_ACCESS_SHADER_WRITE_BIT,
                    stage, access);
            written_ = 0;
        }
        step_ = step;
    }

    bool timestamp(std::size_t query) noexcept {
        if (sink_.queries) {
            vk_.vkCmdWriteTimestamp(sink_.commands, kCompute, sink_.queries, static_cast<std::uint32_t>(query));
        }
        return sink_.queries != VK_NULL_HANDLE;
    }

    Status next_submission() noexcept { return sink_.next ? go_on(sink_.next(sink_.user, sink_.commands)) : Status(); }

    /// Goes on in another command buffer; null says that there is none.
    Status go_on(VkCommandBuffer commands) noexcept {
        sink_.commands = commands;
        if (!commands) {
            return misuse("%s: no command buffer for a further submission", core_.options.name.c_str());
        }
        // submissions overlap unless told otherwise; copies may come first in this one
        VkPipelineStageFlags stages = kCompute;
        VkAccessFlags wrote = VK_ACCESS_SHADER_WRITE_BIT;
        VkAccessFlags access = kShaderAccess;
        if (sink_.mirrors) {
            stages |= kTransfer;
            wrote |= VK_ACCESS_TRANSFER_WRITE_BIT;
            access |= kTransferAccess;
        }
        barrier(vk_, sink_.commands, stages, wrote, stages, access);
        written_ = 0;
        bound_ = nullptr;
        launched_ = false;
        in_submission_ = 0;
        return {};
    }

    void launch(std::size_t d, Command& command, std::uint64_t group, const Grid& grid) noexcept {
        const NodeId node = core_.plan.dispatches[d].dispatch.node;
        const Label named(*core_.device->instance, sink_.commands, core_.plan.nodes[node].label.c_str());
        const Pipeline* pipeline = sink_.sets->pipeline(d, command.kernel());
        if (pipeline != bound_) {
            vk_.vkCmdBindPipeline(sink_.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->handle);
            bound_ = pipeline;
        }
        const VkDescriptorSet set = sink_.sets->set(slot_, d, command.kernel());
        vk_.vkCmdBindDescriptorSets(sink_.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->layout, 0, 1, &set, 0,
                                    nullptr);
        const std::span<std::byte> push = command.push_bytes();
        const std::uint32_t range[2] = {static_cast<std::uint32_t>(group),
                                        static_cast<std::uint32_t>(group + grid.covered)};
        std::memcpy(push.data(), range, sizeof(range));
        vk_.vkCmdPushConstants(sink_.commands, pipeline->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                               static_cast<std::uint32_t>(push.size()), push.data());
        launched_ = true;
        vk_.vkCmdDispatch(sink_.commands, static_cast<std::uint32_t>(grid.x), static_cast<std::uint32_t>(grid.y),
                          static_cast<std::uint32_t>(grid.z));
    }

    ProgramCore& core_;
    const DeviceTable& vk_;
    Sink& sink_;
    std::uint32_t slot_;
    std::span<const std::int64_t> values_;
    Cost& spent_;
    const Pipeline* bound_ = nullptr;
    static constexpr std::size_t kNone = ~std::size_t{0};

    std::size_t under_way_ = kNone;  ///< dispatch that is a collective which has begun
    std::uint32_t step_ = 0;
    VkPipelineStageFlags written_ = 0;  ///< the stage that wrote since the last barrier
    bool launched_ = false;             ///< this command buffer has dispatches
    double in_submission_ = 0;          ///< spent since the last submission, or in this segment
    bool paused_ = false;
};

}  // namespace

std::uint64_t ProgramCore::elements_of(StorageId storage, std::span<const std::int64_t> values) const noexcept {
    std::uint64_t count = 1;
    for (const Dim& d : plan.storages[storage].shape) {
        count *= static_cast<std::uint64_t>(std::max<std::int64_t>(0, d.eval(values)));
    }
    return count;
}

bool ProgramCore::is_dirty(StorageId input) const noexcept {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const InputState& i) { return i.storage == input && i.dirty; });
}

Status ProgramCore::check_sizes(std::span<const std::int64_t> values) const noexcept {
    for (const Constraint& c : plan.constraints) {
        const std::int64_t value = c.value.eval(values);
        const std::int64_t limit = c.limit.eval(values);
        if (value > limit) {
            return misuse("%s: %s: %lld is more than %lld at the sizes given", options.name.c_str(), c.what.c_str(),
                          static_cast<long long>(value), static_cast<long long>(limit));
        }
    }
    for (const SignedSize& s : plan.signed_sizes) {
        if (s.size.eval(values) < 0) {
            return misuse("%s: %s is negative at the sizes given", options.name.c_str(), s.what.c_str());
        }
    }
    return {};
}

void ProgramCore::refuse(const Status& wrong) const {
    std::string_view text = wrong.message.data();
    const std::string name = options.name + ": ";
    text.remove_prefix(text.starts_with(name) ? name.size() : 0);
    throw Error(std::string(text), options.name, wrong.error_result());
}

Status ProgramCore::prepare(std::size_t dispatch, std::span<const std::int64_t> values,
                            Command& command) const noexcept {
    const PlannedDispatch& planned = plan.dispatches[dispatch];
    if (!plan.prepare(planned, values, command)) {
        return misuse("%s: %s: a size is negative at the sizes given", options.name.c_str(),
                      plan.nodes[planned.dispatch.node].label.c_str());
    }
    return {};
}

Cost ProgramCore::cost(std::span<const std::int64_t> values) const noexcept {
    Cost sum;
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        Command command;
        if (prepare(d, values, command)) {
            sum.flops += command.flops();
            sum.bytes += command.bytes();
        }
    }
    return sum;
}

Status ProgramCore::record(Sink& sink, std::uint32_t slot, std::span<const std::int64_t> values, Position& at,
                           Cost& spent) noexcept {
    if (Status wrong = check_sizes(values); !wrong) {
        return wrong;
    }
    Recorder recorder(*this, sink, slot, values, spent);
    for (; at.entry < plan.work.size(); at = {at.entry + 1, 0}) {
        if (Status wrong = recorder.before(at.entry); !wrong) {
            return wrong;
        }
        const PlannedWork& entry = plan.work[at.entry];
        switch (entry.kind) {
            case WorkKind::dispatch:
                if (Status wrong = recorder.dispatch(entry.index, at.group); !wrong) {
                    return wrong;
                }
                break;
            case WorkKind::copy: recorder.copy(plan.copies[entry.index]); break;
            case WorkKind::collective:
                if (Status wrong = recorder.collective(entry.index); !wrong) {
                    return wrong;
                }
                break;
        }
        if (recorder.paused()) {
            return {};
        }
    }
    return recorder.end_collective();
}

}  // namespace vkf
