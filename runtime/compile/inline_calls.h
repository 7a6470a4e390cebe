// SPDX-License-Identifier: Apache-2.0
// Copying the functions of a SPIR-V module into those that call them, ahead of the driver.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// A valid module in which functions stand where they were called; those that nobody calls any more
/// are gone. A call stays if its function returns at several places or from within a loop or a
/// branch, asks not to be inlined, or holds an instruction that is not known here; and so do all
/// calls in a function with such an instruction, and in the header of a loop. A module with debug
/// information is given back as it is.
///
/// With variables made values afterwards (promote_variables.h), SwiftShader takes half of the time
/// for products and attention, and less. Its own optimizer leaves dead stores in modules that ask
/// for float modes (float_modes.h), and it stores under a mask of lanes.
std::vector<std::uint32_t> inline_calls(const std::vector<std::uint32_t>& code);

}  // namespace vkf
