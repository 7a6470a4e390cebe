// SPDX-License-Identifier: Apache-2.0
// Copying the functions of a SPIR-V module into those that call them, ahead of the driver.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// A valid module in which functions stand where they were called. Calls stay of functions that
/// return at several places or from within a loop or a branch, or hold an instruction that is not
/// known here. Functions that nobody calls any more go.
///
/// With variables made values behind it (promote_variables.h), SwiftShader runs kernels of products
/// and attention in half of the time: it writes a variable, and each argument of a call, to memory,
/// lane by lane under a mask.
std::vector<std::uint32_t> inline_calls(const std::vector<std::uint32_t>& code);

}  // namespace vkf
