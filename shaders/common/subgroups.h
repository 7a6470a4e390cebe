// SPDX-License-Identifier: Apache-2.0
// The specialization constant of the kernels that can sum by the arithmetic of subgroups: with
// SUBGROUPS a shader declares kSubgroups by it. Where that is 0, prune() leaves nothing of them.
#ifndef VKF_SHADERS_COMMON_SUBGROUPS_H
#define VKF_SHADERS_COMMON_SUBGROUPS_H

#include "types.h"

VKF_CONSTANT(kSpecSubgroups, 61)  // behind those of every such kernel

#endif
