// SPDX-License-Identifier: Apache-2.0
// The most fours of a row that an invocation holds in registers (held.glsl).
#ifndef VKF_SHADERS_COMMON_HELD_H
#define VKF_SHADERS_COMMON_HELD_H

#include "types.h"

VKF_CONSTANT(kMostHeld, 8)

#endif
