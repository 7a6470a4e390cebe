// SPDX-License-Identifier: Apache-2.0
// How much work one submission may hold, so that it ends long before a watchdog resets the GPU.
#pragma once

#include <algorithm>

namespace vkf {

/// The budget of a GPU of which nothing is known: a quarter of a second's work where it does 10
/// GFLOP/s.
inline constexpr double kFirstSubmitBudget = 2.5e9;

/// The budget after a run of so much work (operations plus bytes), of which is known that it took
/// `least` to `most` seconds: what takes a quarter of a second, an eighth of what Windows allows.
/// It falls where even `least` is too long, and grows where even `most` is short. One run changes
/// it eightfold at most, for others may have had the GPU meanwhile; those below 5 ms tell nothing.
inline double learned_budget(double budget, double work, double least, double most) {
    constexpr double kSeconds = 0.25, kTelling = 0.005, kMostChange = 8, kSmallest = 1e8;
    if (most < kTelling || !(work > 0)) {
        return budget;
    }
    double fits = std::max(budget, work / most * kSeconds);
    if (least > 0) {
        fits = std::min(fits, work / least * kSeconds);
    }
    return std::max(std::clamp(fits, budget / kMostChange, budget * kMostChange), kSmallest);
}

}  // namespace vkf
