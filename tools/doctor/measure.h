// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report.h"

/// Times the copy, multiply-adds in fp32 and on cooperative matrices, and the main ops as shares of
/// them, each for about so many seconds.
void measure(const vkf::Device& device, double seconds, Report& report);
