// SPDX-License-Identifier: Apache-2.0
// Device memory in few blocks, and the streaming upload.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/borrowed_device.h"
#include "runtime/device/vulkan.h"

namespace vkf {

struct DeviceCore;

inline constexpr std::uint32_t kNoMemoryType = ~0u;

/// The memory types with all of `need`, those that have `wish` too first.
std::vector<std::uint32_t> memory_types(const DeviceCore& core, std::uint32_t allowed, VkMemoryPropertyFlags need,
                                        VkMemoryPropertyFlags wish);
/// The first of memory_types(), or kNoMemoryType.
std::uint32_t memory_type(const DeviceCore& core, std::uint32_t allowed, VkMemoryPropertyFlags need,
                          VkMemoryPropertyFlags wish);

/// What this process may have in a heap before it gets slow, and what it has
/// (VK_EXT_memory_budget); 0 where the driver does not tell.
struct HeapBudget {
    std::uint64_t budget = 0, used = 0;
};
std::vector<HeapBudget> heap_budgets(const DeviceCore& core);

enum class MemoryUse : std::uint8_t {
    device,    ///< kernels read and write; host-visible where memory is unified
    shared,    ///< kernels and the host read and write; cached where possible
    upload,    ///< the host writes, the device copies from
    readback,  ///< the device copies to, the host reads; cached where possible
};

/// One buffer on one allocation. `mapped` is null where the host cannot see it.
class Block {
public:
    Block() = default;
    /// Throws Error saying for what, how much was asked and how much the heap has.
    Block(std::shared_ptr<DeviceCore> core, std::uint64_t bytes, MemoryUse use, const std::string& purpose);
    ~Block();
    Block(Block&& other) noexcept;
    Block& operator=(Block&& other) noexcept;

    VkBuffer buffer() const noexcept { return buffer_; }
    std::uint64_t bytes() const noexcept { return bytes_; }
    std::byte* mapped() const noexcept { return mapped_; }
    explicit operator bool() const noexcept { return buffer_ != VK_NULL_HANDLE; }

private:
    void allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags need, VkMemoryPropertyFlags wish,
                  const std::string& purpose);
    void find_memory(const VkMemoryRequirements& needs, std::span<const std::uint32_t> types, const std::string& asked);
    void take_from_host(const VkMemoryRequirements& needs, VkMemoryPropertyFlags need, VkMemoryPropertyFlags wish,
                        const std::string& purpose);
    void release() noexcept;

    std::shared_ptr<DeviceCore> core_;
    VkBuffer buffer_ = VK_NULL_HANDLE;
    VkDeviceMemory memory_ = VK_NULL_HANDLE;
    MemoryPiece piece_;  ///< the memory, where a host's hooks gave it
    std::uint64_t bytes_ = 0;
    std::uint64_t allocated_ = 0;  ///< from the driver
    bool outside_ = false;         ///< not in the device's memory, though it should be
    std::byte* mapped_ = nullptr;
};

/// Words that submissions write behind everything else that they do. There are drivers that give
/// VK_SUCCESS for what they cancelled: a word that is not as it should be tells.
class Canary {
public:
    /// Begins a run, of any number of submissions.
    void begin() noexcept;
    /// Records what the submission of these commands writes last. Throws where there is no memory
    /// for its word.
    void record(const std::shared_ptr<DeviceCore>& core, VkCommandBuffer commands);
    /// Throws, naming `where`, unless every submission recorded since begin() ran. They must have
    /// finished.
    void check(const std::string& where) const;

private:
    static constexpr std::uint64_t kWordsOfBlock = 1024;

    std::uint32_t run_ = 0;
    std::uint64_t used_ = 0;
    std::vector<Block> blocks_;
};

/// Copies host bytes into blocks: directly where they are mapped, else through a bounded staging
/// block, streaming what is larger. finish() waits for the last copy; destruction without it drops
/// what was not submitted. Where the host submits, the copies are noted for record_upload().
class Uploader {
public:
    /// `bytes` will be written in all: the staging block is no larger. Throws where the device was
    /// lost.
    Uploader(std::shared_ptr<DeviceCore> core, std::uint64_t bytes);
    ~Uploader();
    Uploader(const Uploader&) = delete;
    Uploader& operator=(const Uploader&) = delete;

    void write(const Block& target, std::uint64_t offset, std::span<const std::byte> bytes);
    /// Writes a whole block behind what was submitted before and ahead of what is submitted from
    /// then on, mapped ones too: one that runs use, of a device with a queue. The staging block is
    /// as large.
    void write_in_turn(const Block& target, std::span<const std::byte> bytes);
    /// Fills a range with zeros; offset and bytes multiples of 4.
    void zero(const Block& target, std::uint64_t offset, std::uint64_t bytes);
    void finish();
    /// The command buffer of the copies and fills so far, on a device with a queue. Commands
    /// recorded here follow them, and are submitted with them.
    VkCommandBuffer commands();

private:
    void stage(const Block& target, std::uint64_t offset, std::span<const std::byte> bytes);
    void flush();

    std::shared_ptr<DeviceCore> core_;
    std::uint64_t staging_bytes_ = 0;
    Block staging_;
    std::uint64_t used_ = 0;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    VkCommandBuffer commands_ = VK_NULL_HANDLE;
    bool recording_ = false;
    Canary canary_;
};

}  // namespace vkf
