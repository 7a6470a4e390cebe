// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/deferred.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/base/mapped_bytes.h"
#include "runtime/device/barrier.h"
#include "runtime/device/failure.h"

namespace vkf {

namespace {

/// Where copies have written since the last barrier: for each of a few buffers one range, around
/// all that was written there.
class Written {
public:
    /// False where the range may overlap what was written, or there is no place to note it.
    bool add(VkBuffer target, std::uint64_t begin, std::uint64_t end) noexcept {
        for (Range& r : std::span(ranges_).first(count_)) {
            if (r.target == target) {
                if (begin < r.end && r.begin < end) {
                    return false;
                }
                r.begin = std::min(r.begin, begin);
                r.end = std::max(r.end, end);
                return true;
            }
        }
        if (count_ == ranges_.size()) {
            return false;
        }
        ranges_[count_++] = {target, begin, end};
        return true;
    }
    void forget() noexcept { count_ = 0; }

private:
    struct Range {
        VkBuffer target = VK_NULL_HANDLE;
        std::uint64_t begin = 0, end = 0;
    };
    std::array<Range, 16> ranges_;
    std::size_t count_ = 0;
};

}  // namespace

void Deferred::note(Entry entry) {
    if (entry.bytes == 0) {
        return;
    }
    const std::scoped_lock lock(mutex_);
    entry.number = noted_ + 1;
    const std::uint64_t bytes = entry.bytes;
    entries_.push_back(std::move(entry));
    bytes_ += bytes;
    ++noted_;
}

void Deferred::copy(VkBuffer target, std::uint64_t offset, std::span<const std::byte> bytes) {
    std::vector<std::byte> data(bytes.size());
    copy_bytes(bytes, data.data());
    note({.target = target, .offset = offset, .bytes = bytes.size(), .data = std::move(data)});
}

void Deferred::zero(VkBuffer target, std::uint64_t offset, std::uint64_t bytes) {
    note({.target = target, .offset = offset, .bytes = bytes, .data = {}});
}

void Deferred::settle() noexcept { done_ = next_ == entries_.size() ? noted_.load() : entries_[next_].number - 1; }

void Deferred::forget(VkBuffer target) noexcept {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < entries_.size();) {
        Entry& e = entries_[i];
        if (e.target != target) {
            ++i;
            continue;
        }
        bytes_ -= e.bytes - e.copied;
        if (keep_ && e.copied != e.executed) {  // finished() counts what was recorded of it
            next_ += i == next_ ? 1 : 0;
            e.target = VK_NULL_HANDLE;
            e.bytes = e.copied;
            e.data = {};
            ++i;
            continue;
        }
        next_ -= i < next_ ? 1 : 0;
        entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    settle();
}

void Deferred::finished(std::uint64_t position) noexcept {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t until = std::min(position, recorded_.load());
    std::uint64_t left = until - std::min(until, finished_);  // 0 for positions of what was dropped
    finished_ += left;
    while (keep_ && left != 0) {
        Entry& e = entries_.front();
        const std::uint64_t part = std::min(left, e.copied - e.executed);
        e.executed += part;
        left -= part;
        if (e.executed == e.bytes) {
            entries_.pop_front();
            --next_;
        }
    }
}

Status Deferred::dropped() noexcept {
    const std::scoped_lock lock(mutex_);
    if (!keep_) {
        return misuse("%s", "uploads_dropped: what was recorded is not kept (BorrowedDevice::keep_uploads)");
    }
    std::erase_if(entries_, [](const Entry& e) { return !e.target; });
    for (Entry& e : entries_) {
        bytes_ += e.copied - e.executed;
        e.copied = e.executed;
    }
    finished_ = recorded_;
    next_ = 0;
    settle();
    return {};
}

Status Deferred::record(const DeviceTable& vk, VkCommandBuffer commands, const StagingRange& staging) noexcept {
    const std::scoped_lock lock(mutex_);
    if (next_ == entries_.size()) {
        return {};
    }
    const bool copies = std::any_of(entries_.begin() + static_cast<std::ptrdiff_t>(next_), entries_.end(),
                                    [](const Entry& e) { return !e.data.empty(); });
    if (copies && (!staging.buffer || !staging.mapped || staging.offset % 4 != 0 || staging.bytes < 4)) {
        return misuse(
            "record_upload: a mapped staging range of 4 bytes or more at a multiple of 4 is needed; %llu at "
            "%llu were given, %s",
            ull{staging.bytes}, ull{staging.offset},
            !staging.buffer   ? "without a buffer"
            : !staging.mapped ? "not mapped"
                              : "mapped");
    }
    // kernels of earlier recordings may still use what is overwritten
    barrier(vk, commands, kCompute | kTransfer, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, kTransfer,
            VK_ACCESS_TRANSFER_WRITE_BIT);
    std::uint64_t used = 0;
    bool filled = false;  // the copies and fills that follow may be of the same bytes
    Written written;
    while (next_ < entries_.size()) {
        Entry& e = entries_[next_];
        const bool fills = e.data.empty();
        const std::uint64_t left = e.bytes - e.copied;
        const std::uint64_t part = fills ? left : std::min(left, staging.bytes - used);
        if (part == 0) {
            break;
        }
        const std::uint64_t begin = e.offset + e.copied;
        const bool apart = written.add(e.target, begin, begin + part);
        if (filled || fills || !apart) {
            barrier(vk, commands, kTransfer, VK_ACCESS_TRANSFER_WRITE_BIT, kTransfer, VK_ACCESS_TRANSFER_WRITE_BIT);
            written.forget();
            written.add(e.target, begin, begin + part);
        }
        filled = fills;
        if (fills) {
            vk.vkCmdFillBuffer(commands, e.target, begin, part, 0);
        } else {
            std::memcpy(static_cast<std::byte*>(staging.mapped) + used, e.data.data() + e.copied, part);
            const VkBufferCopy region{staging.offset + used, begin, part};
            vk.vkCmdCopyBuffer(commands, staging.buffer, e.target, 1, &region);
            used += part;
        }
        e.copied += part;
        bytes_ -= part;
        recorded_ += part;
        if (e.copied == e.bytes && keep_) {
            ++next_;
        } else if (e.copied == e.bytes) {
            entries_.pop_front();
        }
    }
    settle();
    return {};
}

}  // namespace vkf
