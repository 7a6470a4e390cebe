// SPDX-License-Identifier: Apache-2.0
// The pipelines of a plan, and what becomes of it where a driver refuses one.
#pragma once

#include <vector>

#include "runtime/compile/plan.h"
#include "runtime/device/device_core.h"

namespace vkf {

/// The pipelines of the plan's kernels, [dispatch][kernel]; null: never chosen. Where the device
/// leaves a kernel out, or its driver refuses one, `plan` becomes one that does without, and other
/// programs of the device do without it, too. Throws where there is no other kernel, or
/// VKFORMER_VARIANT asks for this one.
std::vector<std::vector<const Pipeline*>> build_pipelines(DeviceCore& core, Plan& plan);

}  // namespace vkf
