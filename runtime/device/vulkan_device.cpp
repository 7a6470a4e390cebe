// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/vulkan_device.h"

#include <algorithm>
#include <utility>

#include "runtime/device/failure.h"
#include "runtime/device/submit_budget.h"

namespace vkf {

namespace {

/// The host's lock around its queue, and inside it ours: a host may hold its own, if it is one that
/// a thread takes twice, around calls of the library.
class QueueLock {
public:
    explicit QueueLock(VulkanDevice& device) : device_(device) {
        if (device_.host.lock) {
            device_.host.lock(device_.host.user);
        }
        device_.queue_mutex.lock();
    }
    ~QueueLock() {
        device_.queue_mutex.unlock();
        if (device_.host.unlock) {
            device_.host.unlock(device_.host.user);
        }
    }
    QueueLock(const QueueLock&) = delete;
    QueueLock& operator=(const QueueLock&) = delete;

private:
    VulkanDevice& device_;
};

}  // namespace

VulkanDevice::~VulkanDevice() {
    if (given_up) {  // the instance must outlive the device
        if (!given_up.of_an_earlier_era()) {
            instance->log.tell();
        }
        keep_for_ever(std::move(instance));
        return;
    }
    if (handle && owned && api.vkDestroyDevice) {
        api.vkDestroyDevice(handle, nullptr);
    }
}

void VulkanDevice::check_alive() const {
    if (const Status status = alive(); !status) {
        throw Error(status.message.data(), {}, status.error_result());
    }
}

Status VulkanDevice::alive() const noexcept {
    return lost ? failure(VK_ERROR_DEVICE_LOST, "the device %s was lost; make a new Device", capabilities.name.c_str())
                : Status();
}

void VulkanDevice::heard(VkResult result) noexcept {
    if (result == VK_ERROR_DEVICE_LOST) {
        lost = true;
    }
}

void VulkanDevice::check_result(VkResult result, const char* call) {
    heard(result);
    check(result, call);
}

void VulkanDevice::set_wait_limit(double seconds) noexcept {
    constexpr double kMostSeconds = 1e9;  // whose nanoseconds 64 bits count
    wait_limit = seconds > 0 && seconds < kMostSeconds ? static_cast<std::uint64_t>(seconds * 1e9) : ~std::uint64_t{0};
}

VulkanDevice::Submission VulkanDevice::submit(VkCommandBuffer commands, VkFence fence, VkSemaphore timeline,
                                              std::uint64_t value) {
    check_alive();
    VkSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    info.commandBufferCount = 1;
    info.pCommandBuffers = &commands;
    VkTimelineSemaphoreSubmitInfo values{};
    values.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
    values.signalSemaphoreValueCount = 1;
    values.pSignalSemaphoreValues = &value;
    if (timeline) {
        info.pNext = &values;
        info.signalSemaphoreCount = 1;
        info.pSignalSemaphores = &timeline;
    }
    const QueueLock lock(*this);
    const auto before = std::chrono::steady_clock::now();
    const VkResult result = api.vkQueueSubmit(queue, 1, &info, fence);
    const auto behind = std::chrono::steady_clock::now();
    check_result(result, "vkQueueSubmit");
    return {++submitted, before, behind};
}

VulkanDevice::Ended VulkanDevice::end(std::uint64_t number) noexcept {
    const std::scoped_lock lock(ended_mutex);
    const Ended before = ended;
    if (number > ended.number) {
        ended = {number, std::chrono::steady_clock::now()};
    }
    return before;
}

void VulkanDevice::learn_budget(double work, double least, double most) noexcept {
    if (!learns_budget) {
        return;
    }
    const double before = submit_budget;
    // a host's own work counts in the time: for that the budget falls to the first one at most
    const double floor = owned ? 0 : std::min(before, kFirstSubmitBudget);
    submit_budget = std::max(learned_budget(before, work, least, most), floor);
}

VkFence VulkanDevice::make_fence() {
    const VkFenceCreateInfo info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, 0};
    VkFence fence = VK_NULL_HANDLE;
    check_result(api.vkCreateFence(handle, &info, nullptr, &fence), "vkCreateFence");
    return fence;
}

void VulkanDevice::wait(VkFence fence) {
    if (given_up) {
        check_alive();
    }
    const VkResult result = api.vkWaitForFences(handle, 1, &fence, VK_TRUE, wait_limit);
    if (result == VK_TIMEOUT) {
        given_up = true;
        lost = true;
        throw Error("what was submitted to the device " + capabilities.name + " did not finish within " +
                        std::to_string(static_cast<double>(wait_limit) * 1e-9) +
                        " s (DeviceOptions::wait_seconds), and the device is given up; make a new Device",
                    {}, result);
    }
    if (result != VK_SUCCESS) {
        wait_idle();
    }
    check_result(result, "vkWaitForFences");
}

void VulkanDevice::wait_idle() noexcept {
    if (!queue || given_up) {
        return;
    }
    constexpr int kAttempts = 3;
    VkResult result = VK_ERROR_UNKNOWN;
    const QueueLock lock(*this);
    for (int i = 0; i < kAttempts && result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST; ++i) {
        result = api.vkQueueWaitIdle(queue);
    }
    if (result == VK_SUCCESS) {
        end(submitted);
    } else {
        if (result != VK_ERROR_DEVICE_LOST) {
            given_up = true;
        }
        lost = true;
    }
}

void VulkanDevice::submit_and_wait(VkCommandBuffer commands) {
    VkFence fence = make_fence();
    try {
        const Submission submission = submit(commands, fence);
        wait(fence);
        end(submission.number);
    } catch (...) {
        if (!given_up) {
            api.vkDestroyFence(handle, fence, nullptr);
        }
        throw;
    }
    api.vkDestroyFence(handle, fence, nullptr);
}

void VulkanDevice::name(VkObjectType type, std::uint64_t object, const std::string& text) const {
    if (instance->debug_utils && instance->api.vkSetDebugUtilsObjectNameEXT) {
        const VkDebugUtilsObjectNameInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT, nullptr, type,
                                                 object, text.c_str()};
        instance->api.vkSetDebugUtilsObjectNameEXT(handle, &info);
    }
}

}  // namespace vkf
