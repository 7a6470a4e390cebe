// SPDX-License-Identifier: Apache-2.0
// How long the device works on a part of a frame, by timestamps in the frame's commands.
#pragma once

#include "gpu.h"

class Stopwatch {
public:
    /// For this many frames in flight.
    Stopwatch(Gpu& gpu, std::uint32_t frames);

    /// Each once a frame, outside a render pass.
    void start(VkCommandBuffer commands, std::uint32_t slot) const;
    void stop(VkCommandBuffer commands, std::uint32_t slot) const;
    /// Milliseconds from start to stop in the slot's last frame, once its fence has said that it is
    /// done. Nothing on a queue that cannot tell.
    std::optional<double> ms(std::uint32_t slot) const;

private:
    Gpu& gpu_;
    std::uint32_t bits_ = 0;  // of a timestamp that count; 0: there are none
    double period_ = 0;       // of its clock, in nanoseconds
    VkQueryPool queries_{};
};
