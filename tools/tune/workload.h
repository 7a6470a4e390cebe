// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vkformer/vkformer.h>

#include <string>
#include <string_view>

/// The work that is timed to settle a tunable: one op of a size at which it counts. Throws Error
/// for a tunable that has none.
struct Workload {
    std::string what;
    vkf::Program program;
};
Workload make_workload(const vkf::Device& device, std::string_view tunable);

/// Milliseconds of a run: the device's where it has timestamps, else the host's.
double run(Workload& workload);
