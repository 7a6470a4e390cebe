// SPDX-License-Identifier: Apache-2.0
// Attention beside drawing, see frames.h. On a device with one queue the same runs on it, and
// nothing overlaps.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "../arguments.h"
#include "frames.h"

int main(int argc, char** argv) try {
    std::uint64_t count = 60;
    std::uint32_t work = 200;
    CLI::App app("Attention on a compute queue beside drawing on a graphics queue");
    add_number(app, "--frames", count, "how many")->check(CLI::Range(1, 100000))->capture_default_str();
    add_number(app, "--work", work, "iterations a pixel, to keep the graphics queue busy")->capture_default_str();
    if (const int code = parse_arguments(app, argc, argv); code >= 0) {
        return code;
    }

    Gpu gpu;
    int wrong = 0;
    {
        Frames frames(gpu, work);
        std::printf("%s: ", frames.device().capabilities().name.c_str());
        if (gpu.two_families()) {
            std::printf("drawing on family %u, attention on family %u\n", gpu.graphics.family, gpu.compute.family);
        } else if (gpu.two_queues()) {
            std::printf("two queues of family %u: no buffer changes hands\n", gpu.graphics.family);
        } else {
            std::printf("one queue: everything runs on it, in order; nothing can overlap\n");
        }
        frames.run(0, Frames::kSlots, false);  // drivers compile at first use
        const double in_turn = frames.run(Frames::kSlots, count, false);
        const double beside = frames.run(Frames::kSlots + count, count, true);
        std::printf("%.2f ms a frame one after the other, %.2f ms side by side\n", in_turn, beside);
        double steps = 0;
        const double difference = frames.difference(Frames::kSlots + 2 * count - 1, steps);
        std::printf("numbers differ from double precision by at most %.2g, pixels by %.2f of 255\n", difference, steps);
        wrong = difference <= 1e-4 && steps <= 1 ? 0 : 1;
        vkDeviceWaitIdle(gpu.device);
    }
    for (const std::string& message : gpu.messages()) {
        std::printf("%s\n", message.c_str());
        wrong = 1;
    }
    end_output();
    return wrong;
} catch (const std::exception& e) {
    std::fprintf(stderr, "async: %s\n", e.what());
    return 1;
}
