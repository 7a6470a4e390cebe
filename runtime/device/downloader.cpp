// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/downloader.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/device/barrier.h"
#include "runtime/device/device_core.h"

namespace vkf {

namespace {

/// Copies of one submission: regions into the staging block, which it leaves for the host.
class Round {
public:
    Round(Uploader& uploader, const DeviceTable& vk) : uploader_(uploader), vk_(vk) {}

    void submit(const Block& from, const Block& staging, const std::vector<VkBufferCopy>& regions) {
        const VkCommandBuffer commands = uploader_.commands();
        constexpr VkAccessFlags kWritten = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
        barrier(vk_, commands, kCompute | kTransfer, kWritten, kTransfer, VK_ACCESS_TRANSFER_READ_BIT);
        vk_.vkCmdCopyBuffer(commands, from.buffer(), staging.buffer(), static_cast<std::uint32_t>(regions.size()),
                            regions.data());
        barrier(vk_, commands, kTransfer, VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
                VK_ACCESS_HOST_READ_BIT);
        uploader_.finish();
    }

    /// Makes what was written to memory that the host sees visible there.
    void settle() {
        barrier(vk_, uploader_.commands(), kCompute | kTransfer,
                VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
                VK_ACCESS_HOST_READ_BIT);
        uploader_.finish();
    }

private:
    Uploader& uploader_;
    const DeviceTable& vk_;
};

}  // namespace

void download(const std::shared_ptr<DeviceCore>& core, const Block& from, std::span<const ByteRange> ranges,
              std::span<std::byte> to) {
    if (core->deferred) {
        throw Error("a device for which the host submits cannot be read from; record a copy instead");
    }
    Uploader uploader(core, 0);
    Round round(uploader, core->api);
    if (from.mapped()) {
        round.settle();
        std::byte* next = to.data();
        for (const ByteRange& range : ranges) {
            next = std::copy_n(from.mapped() + range.offset, range.bytes, next);
        }
        return;
    }
    const Block staging(core, std::clamp<std::uint64_t>(to.size(), 4, core->options.staging_bytes), MemoryUse::readback,
                        "reading back");
    std::vector<VkBufferCopy> regions;
    std::uint64_t used = 0, done = 0;
    const auto flush = [&] {
        if (used != 0) {
            round.submit(from, staging, regions);
            std::memcpy(to.data() + done, staging.mapped(), used);
            done += used;
            used = 0;
            regions.clear();
        }
    };
    for (const ByteRange& range : ranges) {
        for (std::uint64_t at = 0; at < range.bytes;) {
            const std::uint64_t part = std::min(range.bytes - at, staging.bytes() - used);
            regions.push_back({range.offset + at, used, part});
            used += part;
            at += part;
            if (used == staging.bytes()) {
                flush();
            }
        }
    }
    flush();
}

}  // namespace vkf
