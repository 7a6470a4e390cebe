// SPDX-License-Identifier: Apache-2.0
// How much work one submission may hold, so that it ends long before a watchdog resets the GPU.
#pragma once

#include <algorithm>

namespace vkf {

/// The budget of a GPU of which nothing is known: a quarter of a second's work where it does 10
/// GFLOP/s.
inline constexpr double kFirstSubmitBudget = 2.5e9;

/// The budget after a run that took so many seconds for so much work (operations plus bytes): what
/// takes a quarter of a second, an eighth of what Windows allows. One run changes it eightfold at
/// most, for others may have had the GPU meanwhile; those below 5 ms tell nothing.
inline double learned_budget(double budget, double work, double seconds) {
    constexpr double kSeconds = 0.25, kTelling = 0.005, kMostChange = 8, kLeast = 1e8;
    if (seconds < kTelling || !(work > 0)) {
        return budget;
    }
    const double fits = std::clamp(work / seconds * kSeconds, budget / kMostChange, budget * kMostChange);
    return std::max(fits, kLeast);
}

}  // namespace vkf
