// SPDX-License-Identifier: Apache-2.0
// Chooses the next token among a decoder's candidates.
#pragma once

#include <cstdint>

#include "decoder.h"

namespace vkf {

struct SamplerOptions {
    float temperature = 1.0f;  ///< 0: always the likeliest
    std::int64_t top_k = 50;   ///< chooses among this many of the candidates
    /// Chooses among the fewest of those top_k whose probabilities reach this sum.
    float top_p = 1.0f;
    std::uint64_t seed = 0;
};

/// Applies temperature, then top-k, then top-p (Holtzman et al. 2020), in the order of Hugging
/// Face's warpers. The same seed gives the same choices everywhere.
class VKF_API Sampler {
public:
    /// Throws Error for options out of range.
    explicit Sampler(const SamplerOptions& options);
    /// Chooses a token. `candidates` are best first; there must be at least top_k of them unless
    /// the vocabulary has fewer; at temperature 0 one is enough. Throws Error where it is told that
    /// there are not, where not each has a logit, for logits that are NaN, and where the best is
    /// not finite.
    std::int32_t choose(const Candidates& candidates);

private:
    double uniform();

    SamplerOptions options_;
    std::uint64_t state_;
};

}  // namespace vkf
