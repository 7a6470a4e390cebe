// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report.h"

/// What a device can do at most; 0: it is not known.
struct Ceilings {
    double gflops = 0, matrix_gflops = 0, gbps = 0;
};

/// Of the ceiling that binds the op; 0 where none is known.
double share_of_ceiling(const Measured& op, vkf::Arithmetic arithmetic, const Ceilings& ceilings);

/// Times the copy, multiply-adds in fp32 and on cooperative matrices, and the main ops as shares of
/// them, each for about so many seconds.
void measure(const vkf::Device& device, double seconds, Report& report);
