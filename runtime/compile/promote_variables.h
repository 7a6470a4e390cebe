// SPDX-License-Identifier: Apache-2.0
// Variables of a SPIR-V module that become values, ahead of the driver.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// A valid module in which the variables of functions, and those of an invocation (storage class
/// Private) that only an entry point names, are values in static single assignment form (Braun et
/// al. 2013, "Simple and Efficient Construction of Static Single Assignment Form"). Arrays,
/// structs, matrices and vectors are decomposed into their numbers: vectors that are kept whole
/// cost lavapipe a quarter more time in loops.
///
/// A variable stays if it is indexed by what is no constant, if its address is handed on, or if it
/// holds a cooperative matrix; and so do all variables of a function with an instruction that is
/// not known here, or where blocks times parts of variables are more than 4 million. A module
/// with debug information is given back as it is.
std::vector<std::uint32_t> promote_variables(const std::vector<std::uint32_t>& code);

}  // namespace vkf
