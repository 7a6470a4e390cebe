// SPDX-License-Identifier: Apache-2.0
// The runs that a program has submitted, one of them at most still under way.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "runtime/device/device_core.h"
#include "runtime/device/memory.h"

namespace vkf {

struct SubmittedRuns {
    /// Makes a fence. `program` is named where a run did not run.
    SubmittedRuns(std::shared_ptr<DeviceCore> core, std::string program);
    ~SubmittedRuns();
    SubmittedRuns(const SubmittedRuns&) = delete;
    SubmittedRuns& operator=(const SubmittedRuns&) = delete;

    /// Makes the timeline semaphore by which runs are told too from now on, where the device has
    /// them. Called once somebody asks for tickets.
    void make_semaphore();
    bool pending() const noexcept { return finished != submitted; }
    /// True where this run has finished. Throws where the device was lost under it, or it is the
    /// last one that did not run.
    bool has_finished(std::uint64_t run) const;
    /// Asks the device whether the last run is still under way. It is where nobody can tell.
    bool busy() noexcept;
    /// A run begins: what was timed so far is of another, and the canary's words are.
    void begin() noexcept {
        timed = {};
        canary.begin();
        writes_before_ = state_writes;
    }
    /// A part of the run is this submission of the device.
    void follow(const VulkanDevice::Submission& submission) noexcept;
    /// Makes the fence ready for the next run.
    void reset();
    /// Submits the last command buffer of a run.
    void submit(VkCommandBuffer commands);
    /// False where the run is still under way when the time is over. Throws where it failed, or did
    /// not run; then nothing is pending any more.
    bool wait(std::chrono::nanoseconds timeout);
    void wait();

    /// The last run, whose time tells how much the device can do once it is waited for.
    struct Timed {
        double work = 0;  ///< operations plus bytes; 0: nothing is told
        VulkanDevice::Submission first;
        std::uint64_t last = 0, submissions = 0;
        /// When somebody saw last that it had not ended.
        std::chrono::steady_clock::time_point unfinished;
    };

    std::shared_ptr<DeviceCore> device;
    VkFence fence = VK_NULL_HANDLE;
    /// timeline: the number of the last run that has finished; null until it is asked for
    VkSemaphore semaphore = VK_NULL_HANDLE;
    std::uint64_t submitted = 0, finished = 0;
    /// Submissions that write states, of all runs, those that failed behind some included.
    std::uint64_t state_writes = 0;
    std::uint64_t lost = 0;     ///< the run under which the device was lost, the last one; 0: none
    std::uint64_t dropped = 0;  ///< the last run that did not run, as its canary tells; 0: none
    Canary canary;
    Timed timed;

private:
    /// The last run has finished, and the canary is asked.
    void end() noexcept;
    /// Nobody waits for the last run any more, which failed.
    void fail() noexcept;
    /// It has finished, as somebody finds who waits since then.
    void learn(std::chrono::steady_clock::time_point waited_since) noexcept;

    std::string program_;
    std::exception_ptr why_dropped_;
    std::uint64_t writes_before_ = 0;  ///< state_writes when the run began
};

}  // namespace vkf
