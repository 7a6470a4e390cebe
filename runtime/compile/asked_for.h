// SPDX-License-Identifier: Apache-2.0
// Whether what variables and options ask of ops can be had. Ops know that, so they define it.
#pragma once

#include "runtime/compile/capabilities.h"

namespace vkf {

/// Throws Error for names of kernels in `variants` that are none or do the same work, and, where
/// `tuning` is asked for, for choices that are unknown, given twice, or do not fit the device.
void check_asked_for(const Capabilities& device);

}  // namespace vkf
