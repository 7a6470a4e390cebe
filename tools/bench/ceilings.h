// SPDX-License-Identifier: Apache-2.0
// What a device can do at most: move bytes (a copy kernel, among the ops), multiply-add in fp32,
// and multiply cooperative matrices (here). Rows are given as a share of the ceiling that binds
// them.
#pragma once

#include "benches.h"

/// Multiply-adds of registers alone, on an op of this program's own. Its best run becomes
/// Settings::ceilings.gflops.
Bench fma_ceiling();

/// Products of cooperative matrices of f16 with sums in fp32, of registers alone, in the device's
/// fastest shape. Its best run becomes Settings::ceilings.matrix_gflops.
Bench matrix_ceiling();

/// Reads and writes far more than the device's caches hold.
class CacheFlush {
public:
    explicit CacheFlush(const vkf::Device& device);
    void run() { program_.run(); }

private:
    vkf::Program program_;
};
