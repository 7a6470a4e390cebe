// SPDX-License-Identifier: Apache-2.0
// A case run on a device, and its results looked at.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/cases.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"

namespace vkf::doctor {

struct Checked {
    std::string problem;  ///< empty: there is none
    double error = 0;     ///< the largest, as a share of what is allowed
    std::string kernel;   ///< the one of which the driver made no pipeline
    bool lasts = true;    ///< false: for want of memory, which may be there another time
};

/// The case and the weights that it names, on one device.
struct LoadedCase {
    LoadedCase(const Device& device, Case given);

    /// Planned for these capabilities, with a plan that is not made again where a driver refuses a
    /// kernel; nothing where an op refuses it, which `why` says then: it cannot be there what
    /// VKFORMER_VARIANT or VKFORMER_TUNING asks for.
    std::optional<Plan> plan(const Capabilities& capabilities, std::string* why = nullptr) const;

    Case given_case;
    Weights weights;
};

/// Names of the kernels that the plan takes, each once, that with most of the work first.
std::vector<std::string> kernels_of(const Plan& plan);

/// True where the device is of no use any more: lost, or given up because it hung.
bool is_lost(const Error& error);

/// True where memory was short, which says nothing of a kernel. A driver that makes no pipeline of
/// one is another thing.
bool lacks_memory(const Error& error);

/// Runs the plan so many times: every result must be right, and its bits the same each time. Throws
/// Error where is_lost() or lacks_memory().
Checked check_case(const Device& device, const LoadedCase& loaded, Plan plan, std::uint32_t repeats);

}  // namespace vkf::doctor
