// SPDX-License-Identifier: Apache-2.0
// Uploads of a device for which the host submits: noted here until a command buffer of the host's
// takes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/device/borrowed_device.h"
#include "runtime/device/status.h"
#include "runtime/device/vulkan.h"

namespace vkf {

/// Safe to use from several threads. Entries are numbered in the order they come, from 1, and
/// recorded in that order.
class Deferred {
public:
    /// `keep`: what was recorded is kept until finished().
    explicit Deferred(bool keep) : keep_(keep) {}

    void copy(VkBuffer target, std::uint64_t offset, std::span<const std::byte> bytes);
    void zero(VkBuffer target, std::uint64_t offset, std::uint64_t bytes);
    /// The buffer is about to be destroyed.
    void forget(VkBuffer target) noexcept;
    /// Records what fits into the staging range.
    Status record(const DeviceTable& vk, VkCommandBuffer commands, const StagingRange& staging) noexcept;

    /// Everything recorded before recorded() was `position` has been executed. A position of before
    /// the last dropped() says nothing.
    void finished(std::uint64_t position) noexcept;
    /// What was recorded since finished() waits again. Fails where it was not kept.
    Status dropped() noexcept;

    std::uint64_t bytes() const noexcept { return bytes_; }
    /// Bytes recorded in all, also those that were dropped: a position that no later one goes back
    /// behind.
    std::uint64_t recorded() const noexcept { return recorded_; }
    /// The number of the last entry there was.
    std::uint64_t noted() const noexcept { return noted_; }
    /// The number up to which every entry has been recorded.
    std::uint64_t done() const noexcept { return done_; }

private:
    struct Entry {
        std::uint64_t number = 0;
        VkBuffer target = VK_NULL_HANDLE;  ///< null: forgotten when it was recorded
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
        std::vector<std::byte> data;  ///< empty: zeros
        std::uint64_t copied = 0;     ///< of these bytes so many were recorded
        std::uint64_t executed = 0;   ///< and so many executed, as far as was told
    };

    void note(Entry entry);
    void settle() noexcept;  // mutex held

    const bool keep_;
    std::mutex mutex_;
    std::deque<Entry> entries_;
    /// the first entry that is not recorded whole; those before it are kept
    std::size_t next_ = 0;
    std::uint64_t finished_ = 0;  ///< bytes recorded that were executed, or dropped
    std::atomic<std::uint64_t> bytes_ = 0, noted_ = 0, done_ = 0, recorded_ = 0;
};

}  // namespace vkf
