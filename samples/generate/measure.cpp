// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

/// The shortest of some times of `work`, in seconds, once it has run.
template <class Work>
double shortest(int times, Work work) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i <= times; ++i) {
        const Clock::time_point start = Clock::now();
        work();
        best = i == 0 ? best : std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    return best;
}

}  // namespace

DeviceSpeed measure_device(const vkf::Device& device, std::int64_t chunk) {
    constexpr std::int64_t kIn = 1024, kOut = 8192, kMostTokens = 64;
    const std::int64_t tokens = std::min(chunk, kMostTokens);
    vkf::Graph g;
    const vkf::Dim count = g.symbol("tokens", tokens);
    // one number a token comes back: what is timed is the product
    const vkf::Value y = vkf::linear(g.input("x", {count, kIn}), g.weight("w", {kOut, kIn}));
    g.output("y", vkf::contiguous(vkf::slice(y, 1, 0, 1)));
    const std::vector<float> zeros(static_cast<std::size_t>(kIn * kOut)), x(static_cast<std::size_t>(tokens * kIn));
    const std::vector<vkf::HostTensor> weights{
        {"w", vkf::DType::f32, {kOut, kIn}, std::as_bytes(std::span(zeros)), vkf::WeightType::f32}};
    vkf::Program program = device.compile(g, device.load(g, weights), {.name = "speed"});
    const auto time = [&](std::int64_t rows) {
        program.set("tokens", rows);
        program.upload("x", std::span(x).first(static_cast<std::size_t>(rows * kIn)));
        return shortest(3, [&] { program.run(); }) / static_cast<double>(kIn * kOut);
    };
    return {time(1), time(tokens) * static_cast<double>(chunk) / static_cast<double>(tokens)};
}

LinkSpeed measure_link(vkf::Communicator& ranks) {
    std::vector<LinkSpeed> all(static_cast<std::size_t>(ranks.ranks()), {0, std::numeric_limits<double>::infinity()});
    std::vector<std::byte> data(1 << 20);
    const auto there_and_back = [&](std::span<std::byte> bytes, int a, int b, int times) {
        return shortest(times, [&] {
            if (ranks.rank() == a) {
                ranks.send(bytes, b);
                ranks.receive(bytes, b);
            } else {
                ranks.receive(bytes, a);
                ranks.send(bytes, a);
            }
        });
    };
    for (int r = 0; r + 1 < ranks.ranks(); ++r) {
        if (ranks.rank() == r || ranks.rank() == r + 1) {
            const double empty = there_and_back({}, r, r + 1, 30) / 2, full = there_and_back(data, r, r + 1, 5) / 2;
            LinkSpeed& mine = all[static_cast<std::size_t>(ranks.rank())];
            mine.latency = std::max(mine.latency, empty);
            mine.rate = std::min(mine.rate, static_cast<double>(data.size()) / std::max(full - empty, 1e-9));
        }
    }
    const std::vector<std::uint64_t> bytes(all.size(), sizeof(LinkSpeed));
    ranks.all_gather(std::as_writable_bytes(std::span(all)), bytes);
    LinkSpeed worst = all.front();
    for (const LinkSpeed& s : all) {
        worst = {std::max(worst.latency, s.latency), std::min(worst.rate, s.rate)};
    }
    return worst;
}
