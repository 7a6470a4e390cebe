// SPDX-License-Identifier: Apache-2.0
// The pipelines of a plan, and what becomes of it where a driver refuses one.
#pragma once

#include <vector>

#include "runtime/compile/plan.h"
#include "runtime/device/device_core.h"

namespace vkf {

/// [dispatch][kernel]; null: never chosen
using PipelineTable = std::vector<std::vector<const Pipeline*>>;

/// What lies in buffers of a host's. Of those no more is known than that they are storage buffers.
struct HostMemory {
    bool inputs_and_outputs = false;
    bool scratch = false;
};

/// The pipelines of the plan's kernels. Where the device leaves a kernel out, or its driver refuses
/// one, `plan` becomes one that does without, and other programs of the device do without it, too.
/// Throws where there is no other kernel, or VKFORMER_VARIANT asks for this one.
PipelineTable build_pipelines(DeviceCore& core, Plan& plan, const HostMemory& host);

/// Those of a plan that stays as it is. Throws where a driver refuses a kernel.
PipelineTable pipelines_for(DeviceCore& core, const Plan& plan, const HostMemory& host);

}  // namespace vkf
