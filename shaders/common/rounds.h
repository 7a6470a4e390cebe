// SPDX-License-Identifier: Apache-2.0
// How often the loops of an invocation may go round together on a processor: after 65,535 rounds
// llvmpipe ends every loop, in silence. The rest is for small loops that nobody counts.
#ifndef VKF_SHADERS_COMMON_ROUNDS_H
#define VKF_SHADERS_COMMON_ROUNDS_H

#include "types.h"

VKF_CONSTANT(kMostRounds, 64000)

#endif
