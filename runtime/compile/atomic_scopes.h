// SPDX-License-Identifier: Apache-2.0
// The memory scope of a SPIR-V module's atomics on shared memory.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// A valid module in which atomics of scope Device on variables that a work group shares have scope
/// Workgroup: nobody else sees these. A module whose parts are not known, or that has no ids left,
/// is given back as it is.
///
/// Compilers of GLSL give scope Device to all atomics. Where a host enabled vulkanMemoryModel, that
/// scope takes another feature, vulkanMemoryModelDeviceScope.
std::vector<std::uint32_t> narrow_atomics(std::vector<std::uint32_t> code);

}  // namespace vkf
