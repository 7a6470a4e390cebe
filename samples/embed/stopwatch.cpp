// SPDX-License-Identifier: Apache-2.0
#include "stopwatch.h"

Stopwatch::Stopwatch(Gpu& gpu, std::uint32_t frames) : gpu_(gpu) {
    std::uint32_t families = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(gpu.physical, &families, nullptr);
    std::vector<VkQueueFamilyProperties> list(families);
    vkGetPhysicalDeviceQueueFamilyProperties(gpu.physical, &families, list.data());
    bits_ = list.at(gpu.family).timestampValidBits;
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(gpu.physical, &properties);
    period_ = static_cast<double>(properties.limits.timestampPeriod);
    if (bits_ == 0) {
        return;
    }
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = 2 * frames;
    check(vkCreateQueryPool(gpu.device, &info, nullptr, &queries_), "vkCreateQueryPool");
    gpu.later([&gpu, made = queries_] { vkDestroyQueryPool(gpu.device, made, nullptr); });
}

void Stopwatch::start(VkCommandBuffer commands, std::uint32_t slot) const {
    if (bits_ != 0) {
        vkCmdResetQueryPool(commands, queries_, 2 * slot, 2);
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, 2 * slot);
    }
}

void Stopwatch::stop(VkCommandBuffer commands, std::uint32_t slot) const {
    if (bits_ != 0) {
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, 2 * slot + 1);
    }
}

std::optional<double> Stopwatch::ms(std::uint32_t slot) const {
    std::uint64_t at[2] = {};
    if (bits_ == 0 || vkGetQueryPoolResults(gpu_.device, queries_, 2 * slot, 2, sizeof(at), at, sizeof(at[0]),
                                            VK_QUERY_RESULT_64_BIT) != VK_SUCCESS) {
        return {};
    }
    // the clock may have begun anew in between
    const std::uint64_t ticks = (at[1] - at[0]) & (~std::uint64_t{0} >> (64 - bits_));
    return static_cast<double>(ticks) * period_ * 1e-6;
}
