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
/// All ranks go on with the first one's token, and stop together: an all-gather.
constexpr double kAgreedLatencies = 2;

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

/// The seconds that each device alone takes for the prompt and the answer.
std::vector<double> alone(const Measured& m) {
    std::vector<double> times;
    for (std::size_t r = 0; r < m.step.size(); ++r) {
        times.push_back(static_cast<double>(m.chunks) * m.chunk[r] + static_cast<double>(m.steps) * m.step[r]);
    }
    return times;
}

/// What part of the model each rank has.
std::vector<double> shares_of(const Measured& m) {
    std::vector<double> shares = speeds_of(m);
    shares.resize(m.step.size(), 1.0);
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) {
        share /= sum;
    }
    return shares;
}

bool fits_alone(const Measured& m, std::size_t rank) { return m.one_fits.empty() || m.one_fits[rank]; }

/// The rank that is the soonest done alone, of those that the model fits where there are any.
std::size_t fastest_of(const Measured& m) {
    const std::vector<double> times = alone(m);
    std::size_t best = 0;
    for (std::size_t r = 1; r < times.size(); ++r) {
        const bool fits = fits_alone(m, r), best_fits = fits_alone(m, best);
        best = fits == best_fits ? (times[r] < times[best] ? r : best) : fits ? r : best;
    }
    return best;
}

Choice::Times by_layers(const Measured& m, const std::vector<double>& shares) {
    const std::size_t ranks = shares.size();
    const double tokens = static_cast<double>(m.chunk_tokens);
    double through = 0, longest = 0, step = kAgreedLatencies * m.latency;
    for (std::size_t r = 0; r < ranks; ++r) {
        const bool last = r + 1 == ranks;
        const double part = shares[r] * m.chunk[r] + (last ? 0 : message(m, tokens));
        through += part;
        longest = std::max(longest, part);
        step += shares[r] * m.step[r] + (last ? 0 : message(m, 1) + m.latency);
    }
    return in_all(m, through + std::max(0.0, static_cast<double>(m.chunks) - 1) * longest, step,
                  ranks > 1 && m.layers_fit && m.layers >= static_cast<std::int64_t>(ranks));
}

Choice::Times by_tensor(const Measured& m, const std::vector<double>& shares) {
    const double agreed = kAgreedLatencies * m.latency;
    double chunk = 0, step = 0;  // of the slowest
    for (std::size_t r = 0; r < shares.size(); ++r) {
        chunk = std::max(chunk, shares[r] * m.chunk[r]);
        step = std::max(step, shares[r] * m.step[r]);
    }
    return in_all(m, static_cast<double>(m.chunks) * (chunk + all_reduces(m, static_cast<double>(m.chunk_tokens))),
                  step + all_reduces(m, 1) + 4 * m.latency + agreed, shares.size() > 1 && m.tensor_fits);
}

}  // namespace

std::vector<double> speeds_of(const Measured& m) {
    constexpr double kAlike = 0.8;
    std::vector<double> times = alone(m);
    const double best = *std::min_element(times.begin(), times.end());
    for (double& time : times) {
        time = best / time;
    }
    return *std::min_element(times.begin(), times.end()) > kAlike ? std::vector<double>() : times;
}

Choice choose(const Measured& m) {
    Choice c;
    const std::size_t best = fastest_of(m);
    const std::vector<double> shares = shares_of(m);
    c.fastest = static_cast<int>(best);
    c.one = in_all(m, static_cast<double>(m.chunks) * m.chunk[best], m.step[best], fits_alone(m, best));
    c.tensor = by_tensor(m, shares);
    c.layers = by_layers(m, shares);
    c.way = c.one.all <= std::min(c.tensor.all, c.layers.all) ? Way::one
            : c.tensor.all <= c.layers.all                    ? Way::tensor
                                                              : Way::layers;
    c.why = told(m, c);
    return c;
}
