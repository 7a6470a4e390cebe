// SPDX-License-Identifier: Apache-2.0
// What a device can do at most: move bytes (a copy kernel, among the ops), multiply-add in fp32,
// and multiply cooperative matrices (here). Rows are given as a share of the ceiling that binds
// them.
#pragma once

#include <limits>
#include <optional>

#include "benches.h"
#include "tools/rates/rates.h"

/// Multiply-adds of registers alone, on an op of this program's own. Its best run becomes
/// Settings::ceilings.gflops.
Bench fma_ceiling();

/// Products of cooperative matrices of f16 with sums in fp32, of registers alone, in the device's
/// fastest shape. Its best run becomes Settings::ceilings.matrix_gflops.
Bench matrix_ceiling();

/// Makes a device ready for a timed run: nothing of the run is in its caches, for far more than
/// these hold was read and written; and a GPU has its full clock, for it computed until then. (One
/// that waits for the host between runs, which check results, or for a peer, falls to a fifth of
/// it.)
class Preparation {
public:
    explicit Preparation(const vkf::Device& device);
    /// Before the first of several timed runs: computes until that goes about as fast as it ever
    /// did.
    void warm_up();
    /// Before each.
    void run();

private:
    vkf::Program flush_;
    std::optional<RateProgram> work_;  ///< none on a processor
    double best_ms_ = std::numeric_limits<double>::infinity();
};
