// SPDX-License-Identifier: Apache-2.0
// What a device can do at most: move bytes (a copy kernel, among the ops) and multiply-add in fp32 (here). Rows are given as a share of
// the ceiling that binds them.
#pragma once

#include "benches.h"

/// Multiply-adds of registers alone, on an op of this program's own. Its best run becomes Settings::ceilings.gflops.
Bench fma_ceiling();

/// Reads and writes far more than the device's caches hold.
class CacheFlush {
public:
    explicit CacheFlush(const vkf::Device& device);
    void run() { program_.run(); }

private:
    vkf::Program program_;
};
