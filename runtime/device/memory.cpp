// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/mapped_bytes.h"
#include "runtime/base/numbers.h"
#include "runtime/base/text.h"
#include "runtime/compile/texel_fetches.h"
#include "runtime/device/barrier.h"
#include "runtime/device/deferred.h"
#include "runtime/device/device_core.h"

namespace vkf {

std::vector<std::uint32_t> memory_types(const DeviceCore& core, std::uint32_t allowed, VkMemoryPropertyFlags need,
                                        VkMemoryPropertyFlags wish) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < core.memory.memoryTypeCount; ++i) {
        if ((allowed & (1u << i)) != 0 && (core.memory.memoryTypes[i].propertyFlags & need) == need) {
            out.push_back(i);
        }
    }
    std::stable_partition(out.begin(), out.end(), [&](std::uint32_t type) {
        return (core.memory.memoryTypes[type].propertyFlags & wish) == wish;
    });
    return out;
}

std::uint32_t memory_type(const DeviceCore& core, std::uint32_t allowed, VkMemoryPropertyFlags need,
                          VkMemoryPropertyFlags wish) {
    const std::vector<std::uint32_t> types = memory_types(core, allowed, need, wish);
    return types.empty() ? kNoMemoryType : types.front();
}

std::vector<HeapBudget> heap_budgets(const DeviceCore& core) {
    std::vector<HeapBudget> out(core.memory.memoryHeapCount);
    if (core.tells_budgets) {
        VkPhysicalDeviceMemoryBudgetPropertiesEXT budgets{};
        budgets.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
        VkPhysicalDeviceMemoryProperties2 memory{};
        memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
        memory.pNext = &budgets;
        core.instance->api.vkGetPhysicalDeviceMemoryProperties2(core.physical, &memory);
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = {budgets.heapBudget[i], budgets.heapUsage[i]};
        }
    }
    return out;
}

namespace {

Error too_much(const DeviceCore& core, const std::string& asked, const std::string& had, VkResult result) {
    return Error(asked + " were asked; the heap has " + had + "; one allocation at most " +
                     megabytes(core.capabilities.max_allocation),
                 {}, result);
}

std::uint64_t largest_heap(const DeviceCore& core) {
    std::uint64_t most = 0;
    for (std::uint32_t i = 0; i < core.memory.memoryHeapCount; ++i) {
        most = std::max<std::uint64_t>(most, core.memory.memoryHeaps[i].size);
    }
    return most;
}

}  // namespace

Block::Block(std::shared_ptr<DeviceCore> core, std::uint64_t bytes, MemoryUse use, const std::string& purpose)
    : core_(std::move(core)), bytes_(bytes) {
    core_->check_alive();
    const DeviceTable& vk = core_->api;
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    if (use == MemoryUse::device || use == MemoryUse::shared) {
        info.usage |= VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
        if (core_->capabilities.texel_buffers) {
            info.usage |= VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT;
            info.size = align_up(bytes, kMostTexel);  // the last texel is whole
        }
    }
    const bool fits = info.size <= core_->capabilities.max_allocation;
    const VkResult made =
        fits ? vk.vkCreateBuffer(core_->handle, &info, nullptr, &buffer_) : VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (made != VK_SUCCESS) {
        core_->heard(made);
        throw too_much(*core_, megabytes(bytes) + " for " + purpose,
                       megabytes(largest_heap(*core_)) + (fits ? "; vkCreateBuffer gave " + result_name(made) : ""),
                       made);
    }
    VkMemoryRequirements needs{};
    vk.vkGetBufferMemoryRequirements(core_->handle, buffer_, &needs);

    constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const bool host_side = use != MemoryUse::device || core_->capabilities.unified_memory;
    VkMemoryPropertyFlags need = host_side ? kHost : 0;
    VkMemoryPropertyFlags wish = 0;
    if (use == MemoryUse::device) {
        wish = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    } else if (use == MemoryUse::readback || use == MemoryUse::shared) {
        wish = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    }
    outside_ = use == MemoryUse::device;  // find_memory() sees whether it is
    try {
        if (core_->host.memory.allocate) {
            take_from_host(needs, need, wish, purpose);
        } else {
            allocate(needs, need, wish, purpose);
        }
    } catch (...) {
        release();
        throw;
    }
    core_->name(VK_OBJECT_TYPE_BUFFER, handle_bits(buffer_), purpose);
}

void Block::allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags need, VkMemoryPropertyFlags wish,
                     const std::string& purpose) {
    const DeviceTable& vk = core_->api;
    std::vector<std::uint32_t> types = memory_types(*core_, needs.memoryTypeBits, need, wish);
    const std::string asked = megabytes(needs.size) + " for " + purpose;
    if (types.empty()) {
        throw Error(asked + ": the device has no memory of a fitting type");
    }
    // heaps in which the process has room left come first
    const std::vector<HeapBudget> budgets = heap_budgets(*core_);
    std::stable_partition(types.begin(), types.end(), [&](std::uint32_t type) {
        const HeapBudget& b = budgets[core_->memory.memoryTypes[type].heapIndex];
        return b.budget == 0 || b.used + needs.size <= b.budget;
    });
    find_memory(needs, types, asked);
    core_->check_result(vk.vkBindBufferMemory(core_->handle, buffer_, memory_, 0), "vkBindBufferMemory");
    if ((need & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0) {
        void* pointer = nullptr;
        core_->check_result(vk.vkMapMemory(core_->handle, memory_, 0, VK_WHOLE_SIZE, 0, &pointer), "vkMapMemory");
        mapped_ = static_cast<std::byte*>(pointer);
    }
}

/// Takes memory of the first type whose heap has it; a full heap is not asked again.
void Block::find_memory(const VkMemoryRequirements& needs, std::span<const std::uint32_t> types,
                        const std::string& asked) {
    const VkPhysicalDeviceMemoryProperties& memory = core_->memory;
    std::uint32_t full = 0;  // heaps, a bit each
    std::string had;
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    for (const std::uint32_t type : types) {
        const std::uint32_t at = memory.memoryTypes[type].heapIndex;
        if ((full & (1u << at)) != 0) {
            continue;
        }
        const std::uint64_t heap = memory.memoryHeaps[at].size;
        had += (had.empty() ? "" : ", another ") + megabytes(heap);
        full |= 1u << at;
        if (needs.size > core_->capabilities.max_allocation || needs.size > heap) {
            continue;
        }
        const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
        result = core_->api.vkAllocateMemory(core_->handle, &allocate, nullptr, &memory_);
        if (result == VK_SUCCESS) {
            allocated_ = needs.size;
            core_->allocated += allocated_;
            outside_ = outside_ && (memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) == 0;
            core_->outside += outside_ ? allocated_ : 0;
            return;
        }
        core_->heard(result);
        had += ": " + result_name(result);
        if (result != VK_ERROR_OUT_OF_DEVICE_MEMORY && result != VK_ERROR_OUT_OF_HOST_MEMORY) {
            break;
        }
    }
    throw too_much(*core_, asked, had, result);
}

void Block::take_from_host(const VkMemoryRequirements& needs, VkMemoryPropertyFlags need, VkMemoryPropertyFlags wish,
                           const std::string& purpose) {
    const MemoryHooks& hooks = core_->host.memory;
    const std::string asked = megabytes(needs.size) + " for " + purpose + " of the host's allocator";
    const int result = hooks.allocate(
        hooks.user, {needs.size, needs.alignment, needs.memoryTypeBits, need, wish, purpose.c_str()}, &piece_);
    if (result != VK_SUCCESS) {
        piece_ = {};
        core_->heard(static_cast<VkResult>(result));
        throw Error(asked + ": " + result_name(static_cast<VkResult>(result)), {}, result);
    }
    const bool mapped = (need & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0;
    if (!piece_.memory || piece_.offset % needs.alignment != 0 || (mapped && !piece_.mapped)) {
        throw Error(asked + ": what it gave is without memory, mapping or alignment");
    }
    core_->check_result(core_->api.vkBindBufferMemory(core_->handle, buffer_, piece_.memory, piece_.offset),
                        "vkBindBufferMemory");
    mapped_ = mapped ? static_cast<std::byte*>(piece_.mapped) : nullptr;
}

Block::~Block() { release(); }

Block::Block(Block&& other) noexcept { *this = std::move(other); }

Block& Block::operator=(Block&& other) noexcept {
    if (this != &other) {
        release();
        core_ = std::move(other.core_);
        buffer_ = std::exchange(other.buffer_, VkBuffer(VK_NULL_HANDLE));
        memory_ = std::exchange(other.memory_, VkDeviceMemory(VK_NULL_HANDLE));
        piece_ = std::exchange(other.piece_, {});
        bytes_ = std::exchange(other.bytes_, 0);
        allocated_ = std::exchange(other.allocated_, 0);
        outside_ = other.outside_;
        mapped_ = std::exchange(other.mapped_, nullptr);
    }
    return *this;
}

void Block::release() noexcept {
    if (core_) {
        if (!core_->given_up) {  // else a thread that a fork left behind may hold a lock
            if (core_->deferred && buffer_) {
                core_->deferred->forget(buffer_);
            }
            core_->api.vkDestroyBuffer(core_->handle, buffer_, nullptr);
            core_->api.vkFreeMemory(core_->handle, memory_, nullptr);  // unmaps as well
            if (piece_.memory) {
                core_->host.memory.release(core_->host.memory.user, piece_);
            }
        }
        core_->allocated -= allocated_;
        core_->outside -= outside_ ? allocated_ : 0;
        allocated_ = 0;
        piece_ = {};
        buffer_ = VK_NULL_HANDLE;
        memory_ = VK_NULL_HANDLE;
        mapped_ = nullptr;
    }
}

Uploader::Uploader(std::shared_ptr<DeviceCore> core, std::uint64_t bytes)
    : core_(std::move(core)),
      staging_bytes_(std::max<std::uint64_t>(std::min(core_->options.staging_bytes, bytes), 4)) {
    core_->check_alive();  // memory that is mapped would take the bytes
}

Uploader::~Uploader() {
    if (pool_ && !core_->given_up) {
        core_->api.vkDestroyCommandPool(core_->handle, pool_, nullptr);
    }
}

VkCommandBuffer Uploader::commands() {
    const DeviceTable& vk = core_->api;
    if (!pool_) {
        const VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                           VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, core_->queue_family};
        core_->check_result(vk.vkCreateCommandPool(core_->handle, &info, nullptr, &pool_), "vkCreateCommandPool");
        const VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool_,
                                                   VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        core_->check_result(vk.vkAllocateCommandBuffers(core_->handle, &allocate, &commands_),
                            "vkAllocateCommandBuffers");
    }
    if (!recording_) {
        const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                             VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
        core_->check_result(vk.vkBeginCommandBuffer(commands_, &begin), "vkBeginCommandBuffer");
        recording_ = true;
    }
    return commands_;
}

void Uploader::flush() {
    if (recording_) {
        if (core_->canary) {
            canary_.begin();
            canary_.record(core_, commands_);
        }
        core_->check_result(core_->api.vkEndCommandBuffer(commands_), "vkEndCommandBuffer");
        recording_ = false;
        core_->submit_and_wait(commands_);
        canary_.check("copies to or from the device");
    }
    used_ = 0;
}

void Uploader::write(const Block& target, std::uint64_t offset, std::span<const std::byte> bytes) {
    if (target.mapped()) {
        copy_bytes(bytes, target.mapped() + offset);
        return;
    }
    if (core_->deferred) {
        core_->deferred->copy(target.buffer(), offset, bytes);
        return;
    }
    stage(target, offset, bytes);
}

void Uploader::write_in_turn(const Block& target, std::span<const std::byte> bytes) {
    constexpr VkPipelineStageFlags kUse = kCompute | kTransfer;
    constexpr VkAccessFlags kUses = kShaderAccess | kTransferAccess;
    if (bytes.empty()) {
        return;
    }
    // one submission: a run between two of them would read a part
    staging_ = Block(core_, bytes.size(), MemoryUse::upload, "staging");
    barrier(core_->api, commands(), kUse, kUses, kTransfer, VK_ACCESS_TRANSFER_WRITE_BIT);
    stage(target, 0, bytes);
    barrier(core_->api, commands(), kTransfer, VK_ACCESS_TRANSFER_WRITE_BIT, kUse, kUses);
    flush();
}

void Uploader::stage(const Block& target, std::uint64_t offset, std::span<const std::byte> bytes) {
    if (!staging_ && !bytes.empty()) {
        staging_ = Block(core_, staging_bytes_, MemoryUse::upload, "staging");
    }
    while (!bytes.empty()) {
        if (used_ == staging_.bytes()) {
            flush();
        }
        const std::uint64_t part = std::min<std::uint64_t>(bytes.size(), staging_.bytes() - used_);
        copy_bytes(bytes.first(part), staging_.mapped() + used_);
        const VkBufferCopy region{used_, offset, part};
        core_->api.vkCmdCopyBuffer(commands(), staging_.buffer(), target.buffer(), 1, &region);
        used_ += part;
        offset += part;
        bytes = bytes.subspan(part);
    }
}

void Uploader::zero(const Block& target, std::uint64_t offset, std::uint64_t bytes) {
    if (target.mapped()) {
        std::memset(target.mapped() + offset, 0, bytes);
    } else if (core_->deferred) {
        core_->deferred->zero(target.buffer(), offset, bytes);
    } else if (bytes != 0) {
        core_->api.vkCmdFillBuffer(commands(), target.buffer(), offset, bytes, 0);
    }
}

void Uploader::finish() { flush(); }

}  // namespace vkf
