// SPDX-License-Identifier: Apache-2.0
// From a plan and sizes to Vulkan commands. Nothing here allocates or throws.
#include <algorithm>
#include <cstdio>

#include "runtime/program_core.h"

namespace vkf {

namespace {

template <class... Args>
Status failure(int result, const char* format, Args... args) noexcept {
    Status s;
    s.result = result;
    std::snprintf(s.message.data(), s.message.size(), format, args...);
    return s;
}

/// False when a size came out negative.
bool evaluate(const ValueInfo& value, const Window& window, std::uint32_t element_bytes,
              std::span<const std::int64_t> sizes, View& out) noexcept {
    const std::size_t rank = value.shape.size();
    const std::size_t lead = kMaxRank - rank;
    for (std::size_t i = 0; i < lead; ++i) {
        out.size[i] = 1;
        out.stride[i] = 0;
    }
    bool good = true;
    for (std::size_t i = 0; i < rank; ++i) {
        const std::int64_t size = value.shape[i].eval(sizes);
        good = good && size >= 0;
        out.size[lead + i] = static_cast<std::uint32_t>(size);
        out.stride[lead + i] = static_cast<std::uint32_t>(value.strides[i].eval(sizes));
    }
    out.offset =
        static_cast<std::uint32_t>(value.offset.eval(sizes) - static_cast<std::int64_t>(window.base / element_bytes));
    out.rank = static_cast<std::uint32_t>(rank);
    return good;
}

void barrier(const DeviceTable& vk, VkCommandBuffer commands, VkPipelineStageFlags from_stage, VkAccessFlags from,
             VkPipelineStageFlags to_stage, VkAccessFlags to) noexcept {
    const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, from, to};
    vk.vkCmdPipelineBarrier(commands, from_stage, to_stage, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

void compute_barrier(const DeviceTable& vk, VkCommandBuffer commands) noexcept {
    barrier(vk, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
}

}  // namespace

std::uint64_t ProgramCore::elements_of(StorageId storage, std::span<const std::int64_t> values) const noexcept {
    std::uint64_t count = 1;
    for (const Dim& d : plan.storages[storage].shape) {
        count *= static_cast<std::uint64_t>(std::max<std::int64_t>(0, d.eval(values)));
    }
    return count;
}

Status ProgramCore::encode(Sink& sink, std::uint32_t slot, std::span<const std::int64_t> values) noexcept {
    const DeviceTable& vk = device->api;
    const Capabilities& caps = device->capabilities;
    for (const Constraint& c : plan.constraints) {
        const std::int64_t value = c.value.eval(values);
        const std::int64_t limit = c.limit.eval(values);
        if (value > limit) {
            return failure(-1, "%s: %lld is more than %lld at the sizes given", c.what.c_str(),
                           static_cast<long long>(value), static_cast<long long>(limit));
        }
    }
    const bool labels = device->instance->debug_utils && device->instance->api.vkCmdBeginDebugUtilsLabelEXT != nullptr;
    const Pipeline* current = nullptr;
    std::uint32_t step = 0;
    bool written = false;  // something was dispatched since the last barrier
    double spent = 0;
    std::array<View, kMaxOperands> views;

    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
        const PlannedDispatch& planned = plan.dispatches[d];
        const Dispatch& dispatch = planned.dispatch;
        const std::size_t bound = dispatch.bindings.size();
        const std::size_t count = bound + dispatch.sizes_of.size();
        for (std::size_t i = 0; i < count; ++i) {
            const ValueInfo& value = plan.values[i < bound ? dispatch.bindings[i].value : dispatch.sizes_of[i - bound]];
            const Window& window = planned.windows[std::min(i, bound - 1)];  // of one not bound only the sizes count
            if (!evaluate(value, window, size_of(plan.storages[value.storage].dtype), values, views[i])) {
                return failure(-1, "%s: a size is negative at the sizes given",
                               plan.nodes[dispatch.node].label.c_str());
            }
        }
        Command command;
        dispatch.encode({{views.data(), count}, plan.nodes[dispatch.node].params.get(), dispatch.words}, command);

        if (planned.step != step && written) {
            compute_barrier(vk, sink.commands);
            written = false;
        }
        step = planned.step;
        if (sink.queries) {
            vk.vkCmdWriteTimestamp(sink.commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, sink.queries,
                                   static_cast<std::uint32_t>(2 * d));
        }
        if (labels) {
            const VkDebugUtilsLabelEXT label{VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
                                             nullptr,
                                             plan.nodes[dispatch.node].label.c_str(),
                                             {0, 0, 0, 0}};
            device->instance->api.vkCmdBeginDebugUtilsLabelEXT(sink.commands, &label);
        }
        const double work = command.flops() + command.bytes();
        std::uint64_t most = command.groups();  // groups in one vkCmdDispatch
        if (sink.budget > 0 && work > sink.budget) {
            most = std::max<std::uint64_t>(
                1, static_cast<std::uint64_t>(static_cast<double>(most) * (sink.budget / work)));
        }
        for (std::uint64_t first = 0; first < command.groups();) {
            const std::uint64_t left = std::min(most, command.groups() - first);
            const std::uint64_t x = std::min<std::uint64_t>(left, caps.max_groups[0]);
            const std::uint64_t y = std::min<std::uint64_t>((left + x - 1) / x, caps.max_groups[1]);
            const std::uint64_t z = std::min<std::uint64_t>((left + x * y - 1) / (x * y), caps.max_groups[2]);
            const std::uint64_t covered = std::min(left, x * y * z);
            const double share = work * static_cast<double>(covered) / static_cast<double>(command.groups());
            if (sink.budget > 0 && sink.next && spent > 0 && spent + share > sink.budget) {
                if (labels) {
                    device->instance->api.vkCmdEndDebugUtilsLabelEXT(sink.commands);
                }
                sink.commands = sink.next(sink.user, sink.commands);
                if (!sink.commands) {
                    return failure(-1, "%s: no command buffer for a further submission", options.name.c_str());
                }
                compute_barrier(vk, sink.commands);  // submissions overlap unless told otherwise
                if (labels) {
                    const VkDebugUtilsLabelEXT label{VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
                                                     nullptr,
                                                     plan.nodes[dispatch.node].label.c_str(),
                                                     {0, 0, 0, 0}};
                    device->instance->api.vkCmdBeginDebugUtilsLabelEXT(sink.commands, &label);
                }
                written = false;
                current = nullptr;
                spent = 0;
            }
            spent += share;
            const Pipeline* pipeline = pipelines[d][command.kernel()];
            if (pipeline != current) {
                vk.vkCmdBindPipeline(sink.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->handle);
                current = pipeline;
            }
            const VkDescriptorSet set = sets[slot][d];
            vk.vkCmdBindDescriptorSets(sink.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->layout, 0, 1, &set, 0,
                                       nullptr);
            const std::span<std::byte> push = command.push_bytes();
            const std::uint32_t range[2] = {static_cast<std::uint32_t>(first),
                                            static_cast<std::uint32_t>(first + covered)};
            std::memcpy(push.data(), range, sizeof(range));
            vk.vkCmdPushConstants(sink.commands, pipeline->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                  static_cast<std::uint32_t>(push.size()), push.data());
            vk.vkCmdDispatch(sink.commands, static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y),
                             static_cast<std::uint32_t>(z));
            first += covered;
            written = true;
        }
        if (labels) {
            device->instance->api.vkCmdEndDebugUtilsLabelEXT(sink.commands);
        }
        if (sink.queries) {
            vk.vkCmdWriteTimestamp(sink.commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, sink.queries,
                                   static_cast<std::uint32_t>(2 * d + 1));
            times[d].flops = command.flops();
            times[d].bytes = command.bytes();
            times[d].kernel.assign(dispatch.kernels[command.kernel()].shader->name);
        }
    }
    return {};
}

Status Program::record(VkCommandBuffer commands, std::span<const BufferRange> bindings,
                       std::span<const SizeSetting> settings, std::uint32_t slot) noexcept {
    if (!core_) {
        return failure(-1, "%s", "a program was used that had been moved from");
    }
    ProgramCore& core = *core_;
    if (!core.allocated) {
        return failure(-1, "%s: allocate() must come before record()", core.options.name.c_str());
    }
    if (slot >= core.sets.size()) {
        return failure(-1, "%s: slot %u of %zu", core.options.name.c_str(), slot, core.sets.size());
    }
    RecordScratch& scratch = core.record_scratch[slot];
    for (std::size_t i = 0; i < scratch.sizes.size(); ++i) {
        scratch.sizes[i] = core.sizes[i];
    }
    for (const SizeSetting& s : settings) {
        const auto at = std::find_if(core.plan.symbols.begin(), core.plan.symbols.end(),
                                     [&](const SymbolInfo& info) { return info.name == s.name; });
        if (at == core.plan.symbols.end() || s.value < 0 || s.value > at->max) {
            return failure(-1, "%s: size %.*s = %lld is unknown or outside 0..max", core.options.name.c_str(),
                           static_cast<int>(s.name.size()), s.name.data(), static_cast<long long>(s.value));
        }
        scratch.sizes[static_cast<std::size_t>(at - core.plan.symbols.begin())] = s.value;
    }
    for (StorageId id = 0; id < core.plan.storages.size(); ++id) {
        const StorageInfo& info = core.plan.storages[id];
        if (info.kind != StorageKind::input && info.kind != StorageKind::output) {
            continue;
        }
        const auto at =
            std::find_if(bindings.begin(), bindings.end(), [&](const BufferRange& b) { return b.name == info.name; });
        if (at == bindings.end()) {
            return failure(-1, "%s: %s is not bound", core.options.name.c_str(), info.name.c_str());
        }
        if (at->offset % core.device->capabilities.storage_alignment != 0 || at->bytes < core.plan.storage_bytes[id]) {
            return failure(-1, "%s: %s needs %llu bytes at a multiple of %llu; %llu at %llu were given",
                           core.options.name.c_str(), info.name.c_str(),
                           static_cast<unsigned long long>(core.plan.storage_bytes[id]),
                           static_cast<unsigned long long>(core.device->capabilities.storage_alignment),
                           static_cast<unsigned long long>(at->bytes), static_cast<unsigned long long>(at->offset));
        }
        scratch.places[id] = {at->buffer, at->offset};
    }
    core.bind(slot, scratch.places);  // always: a buffer made anew may have the handle of one that is gone
    Sink sink;
    sink.commands = commands;
    // scratch and state may have been used by an earlier recording on this queue
    barrier(core.device->api, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
            VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    return core.encode(sink, slot, scratch.sizes);
}

}  // namespace vkf
