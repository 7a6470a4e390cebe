// SPDX-License-Identifier: Apache-2.0
#include "search.h"

#include <algorithm>

namespace {

constexpr double kWorthwhile = 0.97;

bool mostly_faster(const Rounds& a, const Rounds& b) {
    std::size_t faster = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        faster += a[i] < b[i] ? 1 : 0;
    }
    return 4 * faster >= 3 * a.size();
}

}  // namespace

double median(Rounds samples) {
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
}

std::size_t best_of(const std::vector<Rounds>& candidates, std::size_t usual) {
    std::size_t best = usual;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const double time = median(candidates[i]);
        if (time <= kWorthwhile * median(candidates[usual]) && mostly_faster(candidates[i], candidates[usual]) &&
            time < median(candidates[best])) {
            best = i;
        }
    }
    return best;
}
