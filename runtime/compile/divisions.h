// SPDX-License-Identifier: Apache-2.0
// Divisions of a SPIR-V module that become shifts, ahead of the driver.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// A valid module in which an unsigned 32-bit number is shifted instead of divided by a constant
/// power of two, and masked for the rest of such a division. A module whose parts are not known, or
/// that has no ids left, is given back as it is.
///
/// SwiftShader's compiler knows nothing of what it divides by: it takes the lanes apart, divides
/// each, and looks for zeros.
std::vector<std::uint32_t> shift_for_divisions(const std::vector<std::uint32_t>& code);

}  // namespace vkf
