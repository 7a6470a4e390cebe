// SPDX-License-Identifier: Apache-2.0
// The most invocations of a group that sums rows without subgroups (row.glsl).
#ifndef VKF_SHADERS_COMMON_ROW_H
#define VKF_SHADERS_COMMON_ROW_H

#include "types.h"

VKF_CONSTANT(kMaxRowGroup, 128)

#endif
