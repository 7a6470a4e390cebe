// SPDX-License-Identifier: Apache-2.0
// What Device::self_test() is asked, and what it finds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../compile/capabilities.h"

namespace vkf {

/// One kernel on one input.
struct SelfCheck {
    /// as Program::explain() names it; several with " + " between, that with most of the work
    /// first, or, of a run that lost the device, that first which is the easiest to do without
    std::string kernel = {};
    std::string what = {};     ///< op, sizes and what is special in the input
    std::string problem = {};  ///< empty: results are right, and the same each time
    double error = 0;          ///< largest error as a share of what is allowed; above 1 it is wrong
    double ms = 0;             ///< on the host, compilation too
    bool chosen = false;       ///< the device chooses the kernel unasked
};

/// What fp32 numbers keep on their way through a kernel that multiplies them by 1. Results do not
/// depend on the first; without the others masks do not hold.
struct FloatFacts {
    bool denormals = false, nan = false, infinity = false, minus_zero = false;
    /// A weight kept in f16 that is below 2^-14 is read as what it is, and not as 0.
    bool f16_denormals = false;
};

struct SelfTestOptions {
    /// True: also the kernels that stand in for others, those that only VKFORMER_VARIANT takes, and
    /// more inputs. Takes seconds, on processors a minute.
    bool thorough = false;
    std::uint32_t repeats = 2;  ///< runs of each, whose bits are compared; at least 1
    /// Begins no further check after so many seconds; 0: no bound.
    double seconds = 0;
    /// Called after each check, where it is set.
    std::function<void(const SelfCheck&)> progress = {};
};

/// healthy: nothing failed; degraded: kernels failed and others stand in for them; unusable: one
/// failed that has none in its place.
enum class Verdict : std::uint8_t { healthy, degraded, unusable };

struct SelfTest {
    std::vector<SelfCheck> checks;
    std::vector<LeftOut> left_out;  ///< kernels that failed and that others stand in for
    FloatFacts floats;
    /// false: SelfTestOptions::seconds were over, memory was short for a check, which its problem
    /// says, or the device was lost or drops work
    bool complete = true;
    Verdict verdict = Verdict::healthy;
};

}  // namespace vkf
