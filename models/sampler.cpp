// SPDX-License-Identifier: Apache-2.0
#include "models/sampler.h"

#include <algorithm>
#include <cmath>

namespace vkf {

Sampler::Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {
    const auto require = [](bool good, const std::string& what) {
        if (!good) {
            throw Error(what, "Sampler");
        }
    };
    require(std::isfinite(options.temperature) && options.temperature >= 0,
            "temperature " + std::to_string(options.temperature) + " is not finite and >= 0");
    require(options.top_k >= 1, "top_k " + std::to_string(options.top_k) + " is below 1");
    require(options.top_p > 0 && options.top_p <= 1,
            "top_p " + std::to_string(options.top_p) + " is not in 0..1, above 0");
}

/// Draws 53 bits of SplitMix64 (Steele et al. 2014), as a number in [0, 1).
double Sampler::uniform() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

std::int32_t Sampler::choose(const Candidates& candidates) {
    if (candidates.tokens.size() != candidates.logits.size()) {
        throw Error(std::to_string(candidates.tokens.size()) + " tokens have " +
                        std::to_string(candidates.logits.size()) + " logits",
                    "Sampler");
    }
    const std::size_t count = std::min(candidates.tokens.size(), static_cast<std::size_t>(options_.top_k));
    if (count == 0) {
        throw Error("there are no candidates", "Sampler");
    }
    const std::int64_t wanted = options_.temperature == 0 ? 1 : std::min(options_.top_k, candidates.vocab_size);
    if (static_cast<std::int64_t>(count) < wanted) {
        throw Error("top_k = " + std::to_string(options_.top_k) + " chooses among " + std::to_string(wanted) +
                        " tokens, and there are " + std::to_string(count) +
                        " candidates; DecoderOptions::candidates says how many",
                    "Sampler");
    }
    const std::span<const float> logits = candidates.logits.first(count);
    if (!std::isfinite(logits[0]) ||
        std::any_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); })) {
        throw Error("the logits of the candidates are not finite", "Sampler");
    }
    const double best = logits[0];
    if (options_.temperature == 0) {
        return candidates.tokens[0];
    }
    std::vector<double> shares(count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
        sum += shares[i] = std::exp((candidates.logits[i] - best) / options_.temperature);
    }
    std::size_t kept = 0;
    double kept_sum = 0;
    while (kept < count && kept_sum < options_.top_p * sum) {
        kept_sum += shares[kept++];
    }
    double left = uniform() * kept_sum;
    std::size_t chosen = 0;
    while (chosen + 1 < kept && left >= shares[chosen]) {
        left -= shares[chosen++];
    }
    return candidates.tokens[chosen];
}

}  // namespace vkf
