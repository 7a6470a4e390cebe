// SPDX-License-Identifier: Apache-2.0
#include "choice.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Up to so many numbers an all-reduce sends everything to everyone.
constexpr double kReducedAtOnce = 16384;

double all_reduces(const Measured& m, double tokens) {
    const double numbers = tokens * static_cast<double>(m.width), others = static_cast<double>(m.step.size()) - 1;
    const double each = numbers <= kReducedAtOnce ? 2 * m.latency + others * 4 * numbers / m.rate
                                                  : 3 * m.latency + 2 * others / (others + 1) * 4 * numbers / m.rate;
    return static_cast<double>(2 * m.layers + 1) * each;
}

double message(const Measured& m, double tokens) {
    return m.latency + tokens * static_cast<double>(m.width) * 4 / m.rate;
}

Choice::Times in_all(const Measured& m, double prompt, double step, bool possible) {
    if (!possible) {
        return {kNever, kNever, kNever};
    }
    return {prompt, step, prompt + static_cast<double>(m.steps) * step};
}

std::string in_milliseconds(const char* name, const Choice::Times& times) {
    char text[96];
    if (times.all == kNever) {
        return std::string(name) + " cannot be";
    }
    std::snprintf(text, sizeof(text), "%s %.4g ms and %.4g ms a token", name, times.prompt * 1e3, times.step * 1e3);
    return text;
}

std::string told(const Measured& m, const Choice& c) {
    char text[96];
    std::snprintf(text, sizeof(text), "link %.3g us and %.3g GB/s, devices", m.latency * 1e6, m.rate * 1e-9);
    std::string out = text;
    for (std::size_t r = 0; r < m.step.size(); ++r) {
        std::snprintf(text, sizeof(text), "%s %.3g ms a token", r == 0 ? "" : ",", m.step[r] * 1e3);
        out += text;
    }
    const std::string one = "rank " + std::to_string(c.fastest) + " alone";
    return out + "\n" +
           (c.way == Way::one      ? one
            : c.way == Way::tensor ? "tensor parallel"
                                   : "layer parallel") +
           ", by the model of time: " + in_milliseconds(one.c_str(), c.one) + ", " +
           in_milliseconds("tensor", c.tensor) + ", " + in_milliseconds("layers", c.layers);
}

}  // namespace

Choice choose(const Measured& m) {
    const std::size_t ranks = m.step.size();
    const double n = static_cast<double>(ranks), chunks = static_cast<double>(m.chunks);
    const double tokens = static_cast<double>(m.chunk_tokens);
    Choice c;
    std::vector<double> alone;
    for (std::size_t r = 0; r < ranks; ++r) {
        alone.push_back(chunks * m.chunk[r] + static_cast<double>(m.steps) * m.step[r]);
    }
    const auto best = static_cast<std::size_t>(std::min_element(alone.begin(), alone.end()) - alone.begin());
    c.fastest = static_cast<int>(best);
    for (const double time : alone) {
        c.speeds.push_back(alone[best] / time);
    }
    c.one = in_all(m, chunks * m.chunk[best], m.step[best], m.one_fits);
    const double slowest_chunk = *std::max_element(m.chunk.begin(), m.chunk.end());
    const double slowest_step = *std::max_element(m.step.begin(), m.step.end());
    c.tensor = in_all(m, chunks * (slowest_chunk / n + all_reduces(m, tokens)),
                      slowest_step / n + all_reduces(m, 1) + 4 * m.latency, ranks > 1 && m.tensor_fits);
    const double sum = std::accumulate(c.speeds.begin(), c.speeds.end(), 0.0);
    double through = 0, longest = 0, step = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        const double share = c.speeds[r] / sum, part = share * m.chunk[r] + (r + 1 < ranks ? message(m, tokens) : 0);
        through += part;
        longest = std::max(longest, part);
        step += share * m.step[r] + (r + 1 < ranks ? message(m, 1) + m.latency : 0);
    }
    c.layers = in_all(m, through + std::max(0.0, chunks - 1) * longest, step,
                      ranks > 1 && m.layers >= static_cast<std::int64_t>(ranks));
    c.way = c.one.all <= std::min(c.tensor.all, c.layers.all) ? Way::one
            : c.tensor.all <= c.layers.all                    ? Way::tensor
                                                              : Way::layers;
    c.why = told(m, c);
    return c;
}
