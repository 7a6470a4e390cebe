// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/ticket.h"

#include "runtime/device/submitted_runs.h"

namespace vkf {

bool Ticket::done() const { return wait(std::chrono::nanoseconds(0)); }

void Ticket::wait() const {
    if (runs_ && !runs_->has_finished(value_)) {
        runs_->wait();
    }
}

bool Ticket::wait(std::chrono::nanoseconds timeout) const {
    return !runs_ || runs_->has_finished(value_) || runs_->wait(timeout);
}

VkSemaphore Ticket::semaphore() const noexcept { return runs_ ? runs_->semaphore : VkSemaphore{}; }

}  // namespace vkf
