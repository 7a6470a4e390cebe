// SPDX-License-Identifier: Apache-2.0
// What the sample's numbers must be, computed again in double precision.
#pragma once

#include <cmath>
#include <cstdint>

/// The largest difference of `y` from twice the causal attention of `x` with itself; both are
/// (tokens, width). NaN where y is.
inline double largest_difference(const float* x, const float* y, std::uint32_t tokens, std::uint32_t width) {
    double largest = 0;
    for (std::uint32_t i = 0; i < tokens * width; ++i) {
        const float* query = x + i / width * width;
        double sum = 0, weighted = 0;
        for (const float* key = x; key <= query; key += width) {
            double score = 0;
            for (std::uint32_t j = 0; j < width; ++j) {
                score += static_cast<double>(query[j]) * key[j];
            }
            const double weight = std::exp(score / std::sqrt(width));
            sum += weight;
            weighted += weight * key[i % width];
        }
        const double off = std::abs(y[i] - 2 * weighted / sum);
        largest = off <= largest ? largest : off;  // a NaN stays
        if (std::isnan(off)) {
            break;
        }
    }
    return largest;
}
