// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/submitted_runs.h"

#include <algorithm>
#include <utility>

namespace vkf {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

SubmittedRuns::SubmittedRuns(std::shared_ptr<DeviceCore> core, std::string program)
    : device(std::move(core)), fence(device->make_fence()), program_(std::move(program)) {}

SubmittedRuns::~SubmittedRuns() {
    if (device->given_up) {
        return;
    }
    if (semaphore) {
        // A driver may wake who waits for the fence before it has signalled the semaphore. The
        // queue may be the host's, with work that waits for what the host does behind this: that is
        // waited for only where it must be.
        const VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &semaphore, &submitted};
        const VkResult result = device->api.vkWaitSemaphoresKHR
                                    ? device->api.vkWaitSemaphoresKHR(device->handle, &info, device->wait_limit)
                                    : VK_ERROR_UNKNOWN;
        device->heard(result);
        if (result != VK_SUCCESS) {
            device->wait_idle();
        }
        if (device->given_up) {
            return;
        }
        device->api.vkDestroySemaphore(device->handle, semaphore, nullptr);
    }
    device->api.vkDestroyFence(device->handle, fence, nullptr);
}

void SubmittedRuns::make_semaphore() {
    if (semaphore || !device->capabilities.timeline_semaphore) {
        return;
    }
    const VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr,
                                         VK_SEMAPHORE_TYPE_TIMELINE, submitted};
    const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    device->check_result(device->api.vkCreateSemaphore(device->handle, &info, nullptr, &semaphore),
                         "vkCreateSemaphore");
}

bool SubmittedRuns::has_finished(std::uint64_t run) const {
    if (lost != 0 && run >= lost) {
        device->check_alive();
    }
    if (dropped != 0 && run == dropped) {
        std::rethrow_exception(why_dropped_);
    }
    return finished >= run;
}

void SubmittedRuns::end() noexcept {
    finished = submitted;
    if (device->given_up) {
        return;  // nothing that it wrote is looked at, which may not be mapped behind a fork
    }
    try {
        canary.check(program_);
    } catch (...) {
        dropped = submitted;
        why_dropped_ = std::current_exception();
        if (timed.submissions == 1) {  // all of the run did not run
            state_writes = writes_before_;
        }
    }
}

void SubmittedRuns::fail() noexcept {
    lost = device->lost ? submitted : 0;
    end();
}

bool SubmittedRuns::busy() noexcept {
    if (!pending()) {
        return false;
    }
    const Clock::time_point now = Clock::now();
    const VkResult result = device->api.vkWaitForFences(device->handle, 1, &fence, VK_TRUE, 0);
    device->heard(result);
    if (result == VK_TIMEOUT) {
        timed.unfinished = now;
    }
    return result != VK_SUCCESS;
}

void SubmittedRuns::reset() {
    device->check_result(device->api.vkResetFences(device->handle, 1, &fence), "vkResetFences");
}

void SubmittedRuns::submit(VkCommandBuffer commands) {
    follow(device->submit(commands, fence, semaphore, submitted + 1));
    ++submitted;
}

void SubmittedRuns::follow(const VulkanDevice::Submission& submission) noexcept {
    if (timed.submissions++ == 0) {
        timed.first = submission;
    }
    timed.last = submission.number;
}

void SubmittedRuns::learn(Clock::time_point waited_since) noexcept {
    constexpr std::chrono::milliseconds kBlocked(1);
    const Clock::time_point now = Clock::now();
    if (now - kBlocked > waited_since) {
        timed.unfinished = now;  // it ended when the wait did
    }
    const VulkanDevice::Ended before = device->end(timed.last);
    const std::chrono::duration<double> most = now - timed.first.before;
    std::chrono::duration<double> least{};
    // What a device submits begins in this order: the run began at the latest when all before it
    // had ended. Whether it had, nobody knows where another thread submitted in between, or waited
    // for a later one first.
    if (before.number + 1 == timed.first.number && timed.last - timed.first.number + 1 == timed.submissions) {
        least = timed.unfinished - std::max(timed.first.behind, before.at);
    }
    device->learn_budget(timed.work, least.count(), most.count());
}

bool SubmittedRuns::wait(std::chrono::nanoseconds timeout) {
    if (!pending()) {
        return true;
    }
    if (device->given_up) {
        device->check_alive();
    }
    const auto limit = static_cast<std::uint64_t>(std::max<std::int64_t>(timeout.count(), 0));
    const Clock::time_point start = Clock::now();
    const VkResult result = device->api.vkWaitForFences(device->handle, 1, &fence, VK_TRUE, limit);
    if (result == VK_TIMEOUT) {
        timed.unfinished = start;
        return false;
    }
    if (result != VK_SUCCESS) {
        device->heard(result);
        device->wait_idle();
        fail();
        check(result, "vkWaitForFences");
    }
    learn(limit > 0 ? start : Clock::time_point::max());
    end();
    return has_finished(submitted);
}

void SubmittedRuns::wait() {
    if (!pending()) {
        return;
    }
    const Clock::time_point start = Clock::now();
    try {
        device->wait(fence);
    } catch (...) {
        fail();
        throw;
    }
    learn(start);
    end();
    has_finished(submitted);
}

}  // namespace vkf
