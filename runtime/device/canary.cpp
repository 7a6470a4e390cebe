// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "runtime/device/barrier.h"
#include "runtime/device/device_core.h"
#include "runtime/device/memory.h"

namespace vkf {

void Canary::begin() noexcept {
    run_ = run_ == ~std::uint32_t{0} ? 1 : run_ + 1;
    used_ = 0;
}

void Canary::record(const std::shared_ptr<DeviceCore>& core, VkCommandBuffer commands) {
    const std::uint64_t block = used_ / kWordsOfBlock;
    if (block == blocks_.size()) {
        blocks_.emplace_back(core, kWordsOfBlock * sizeof(run_), MemoryUse::readback, "canary");
        std::memset(blocks_.back().mapped(), 0, blocks_.back().bytes());  // the number of no run
    }
    const DeviceTable& vk = core->api;
    barrier(vk, commands, kCompute | kTransfer, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, kTransfer,
            VK_ACCESS_TRANSFER_WRITE_BIT);
    vk.vkCmdFillBuffer(commands, blocks_[block].buffer(), used_ % kWordsOfBlock * sizeof(run_), sizeof(run_), run_);
    barrier(vk, commands, kTransfer, VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    ++used_;
}

void Canary::check(const std::string& where) const {
    for (std::uint64_t i = 0; i < used_; ++i) {
        std::uint32_t word = 0;
        std::memcpy(&word, blocks_[i / kWordsOfBlock].mapped() + i % kWordsOfBlock * sizeof(word), sizeof(word));
        if (word != run_) {
            throw Error("submission " + std::to_string(i + 1) + " of " + std::to_string(used_) +
                            " was taken with VK_SUCCESS and did not run: what it should have written is as before",
                        where, VK_ERROR_UNKNOWN);
        }
    }
}

}  // namespace vkf
