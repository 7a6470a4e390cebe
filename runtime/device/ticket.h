// SPDX-License-Identifier: Apache-2.0
// A run that was submitted and is not waited for yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "../base/export.h"
#include "vulkan_handles.h"

namespace vkf {

struct SubmittedRuns;

/// A run that Program::submit() submitted; copies stand for the same run. A ticket may outlive its
/// program, which waits for its runs when it is destroyed. Externally synchronised together with
/// its program.
class VKF_API Ticket {
public:
    /// A ticket of no run, which is done.
    Ticket() = default;

    /// True once the run has finished. Does not wait. Throws Error where the device was lost before
    /// that, each time; with DeviceOptions::canary also where the run did not run, each time until
    /// another one did not.
    bool done() const;
    /// Waits until the run has finished. Throws as done() does.
    void wait() const;
    /// Waits at most `timeout`; returns false when the time is over first. Throws as done() does.
    bool wait(std::chrono::nanoseconds timeout) const;

    /// A timeline semaphore, and the value it reaches when the run has finished: for
    /// vkWaitSemaphores(), or for a submission of the host's that goes on with the outputs. It
    /// lives as long as a ticket of the program or the program: keep one until your submission has
    /// finished too. Null where the device has none (Capabilities::timeline_semaphore).
    VkSemaphore semaphore() const noexcept;
    std::uint64_t value() const noexcept { return value_; }

private:
    friend struct ProgramCore;
    Ticket(std::shared_ptr<SubmittedRuns> runs, std::uint64_t value) : runs_(std::move(runs)), value_(value) {}

    std::shared_ptr<SubmittedRuns> runs_;
    std::uint64_t value_ = 0;
};

}  // namespace vkf
