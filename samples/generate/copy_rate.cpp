// SPDX-License-Identifier: Apache-2.0
#include "copy_rate.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

double copy_rate(const vkf::Device& device) {
    constexpr std::int64_t kMost = (64 << 20) / sizeof(float);
    const vkf::Capabilities& caps = device.capabilities();
    const auto range = static_cast<std::int64_t>(std::min(caps.storage_range, caps.device_memory / 8));
    const std::int64_t count = std::min(kMost, range / 16 * 4);
    vkf::Graph g;
    const vkf::Value from = g.state("from", {count / 1024, 1024});
    const vkf::Value to = g.state("to", {count / 1024, 1024});
    vkf::copy_into(to, from);
    vkf::Program program = device.compile(g, {}, {.name = "copy rate"});
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 10; ++i) {
        const auto start = std::chrono::steady_clock::now();
        program.run();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return program.cost().bytes / best;
}
