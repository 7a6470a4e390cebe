// SPDX-License-Identifier: Apache-2.0
// The specialization constant of the kernels that can load 8 bytes at a time (fours.glsl).
#ifndef VKF_SHADERS_COMMON_WIDE_H
#define VKF_SHADERS_COMMON_WIDE_H

#include "types.h"

VKF_CONSTANT(kSpecWide, 60)  // behind those of every such kernel

#endif
